"""Give a module another forward pass while it stays an instance of its own class.

`transformers` finds attention modules by `isinstance` (to record attention weights, for example),
so an emptied block must not turn into something else.
"""

from __future__ import annotations

from typing import Any, TypeVar, cast

from torch import nn

_MIXED: dict[tuple[type, type[nn.Module]], type[nn.Module]] = {}


def recast(module: nn.Module, behaviour: type) -> None:
    """Let `module` behave by `behaviour` first, and by its own class for the rest."""
    # Earlier versions of transformers leave a forward pass on the instance when they have recorded
    # attention weights; it would go before the class's.
    vars(module).pop("forward", None)
    module.__class__ = cast(Any, _mixed(behaviour, own_class(type(module))))


def _mixed(behaviour: type, base: type[nn.Module]) -> type[nn.Module]:
    if (behaviour, base) not in _MIXED:

        def reduce(self: nn.Module) -> tuple[Any, ...]:
            # Copies and pickles find the class by what it is made of: it has no name of its own.
            return _blank, (behaviour, base), self.__dict__

        name = f"{behaviour.__name__}{base.__name__}"
        body = {"__module__": base.__module__, "__reduce__": reduce}
        _MIXED[behaviour, base] = type(name, (behaviour, base), body)
    return _MIXED[behaviour, base]


def _blank(behaviour: type, base: type[nn.Module]) -> nn.Module:
    cls = _mixed(behaviour, base)
    return cls.__new__(cls)


def own_class(cls: type[nn.Module]) -> type[nn.Module]:
    """The class that a recast module was built with."""
    return next((base for (_, base), mixed in _MIXED.items() if mixed is cls), cls)


_ATTRIBUTE = "_headcount_hooks"
Hook = TypeVar("Hook")


def hook_on(module: nn.Module, kind: type[Hook], *, before: bool) -> Hook:
    """The module's hook of that kind, registered if it is not there yet.

    A hook is found again when more heads are removed, and is told what is left then.

    Args:
        module: the module to hook.
        kind: the class of the hook; made without arguments.
        before: run before the forward pass, with its arguments; else after it, with its output.
    """
    hooks: dict[str, Any] = vars(module).setdefault(_ATTRIBUTE, {})
    if kind.__name__ not in hooks:
        hook = kind()
        if before:
            module.register_forward_pre_hook(cast(Any, hook), with_kwargs=True)
        else:
            module.register_forward_hook(cast(Any, hook))
        hooks[kind.__name__] = hook
    return cast(Hook, hooks[kind.__name__])
