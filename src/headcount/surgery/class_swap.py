"""Two lasting changes to a module of a pruned model: another forward pass, or a hook.

`recast` gives a module another forward pass while it stays an instance of its own class:
`transformers` finds attention modules by `isinstance`, to record attention weights, for example.
`hook_on` registers hooks that stay on the model, one per module and purpose.
"""

from __future__ import annotations

from typing import Any, TypeVar, cast

from torch import nn

Hook = TypeVar("Hook")

_MIXED: dict[tuple[type, type[nn.Module]], type[nn.Module]] = {}  # by behaviour and own class
_ATTRIBUTE = "_headcount_hooks"  # of a module: its hooks, by the name of their class


def recast(module: nn.Module, behaviour: type) -> None:
    """Give `module` the methods of `behaviour`, and those of its own class for the rest."""
    # Earlier versions of transformers leave a forward pass on the instance after they recorded
    # attention weights. It would override the class's.
    vars(module).pop("forward", None)
    module.__class__ = cast(Any, _mixed(behaviour, own_class(type(module))))


def own_class(cls: type[nn.Module]) -> type[nn.Module]:
    """The class that a module had before `recast`."""
    return next((base for (_, base), mixed in _MIXED.items() if mixed is cls), cls)


def hook_on(module: nn.Module, kind: type[Hook], *, before: bool) -> Hook:
    """The module's hook of that class, registered if it is not there yet.

    The caller then sets the hook's attributes. It finds the same hook when more heads are removed.

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


def _mixed(behaviour: type, base: type[nn.Module]) -> type[nn.Module]:
    if (behaviour, base) not in _MIXED:

        def reduce(self: nn.Module) -> tuple[Any, ...]:
            # The class cannot be imported by name, so copies and pickles build it from its parts.
            return _blank, (behaviour, base), self.__dict__

        name = f"{behaviour.__name__}{base.__name__}"
        body = {"__module__": base.__module__, "__reduce__": reduce}
        _MIXED[behaviour, base] = type(name, (behaviour, base), body)
    return _MIXED[behaviour, base]


def _blank(behaviour: type, base: type[nn.Module]) -> nn.Module:
    cls = _mixed(behaviour, base)
    return cls.__new__(cls)
