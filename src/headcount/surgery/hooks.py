"""Hooks that stay on a pruned model, one per module and purpose."""

from __future__ import annotations

from typing import Any, TypeVar, cast

from torch import nn

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
