"""Give a module another forward pass while it stays an instance of its own class.

`transformers` finds attention modules by `isinstance` (to record attention weights, for example),
so an emptied block must not turn into something else.
"""

from __future__ import annotations

from typing import Any, cast

from torch import nn

_MIXED: dict[tuple[type, type[nn.Module]], type[nn.Module]] = {}


def recast(module: nn.Module, behaviour: type) -> None:
    """Let `module` behave by `behaviour` first, and by its own class for the rest."""
    base = own_class(type(module))
    if (behaviour, base) not in _MIXED:
        name = f"{behaviour.__name__}{base.__name__}"
        _MIXED[behaviour, base] = type(name, (behaviour, base), {"__module__": base.__module__})
    module.__class__ = cast(Any, _MIXED[behaviour, base])


def own_class(cls: type[nn.Module]) -> type[nn.Module]:
    """The class that a recast module was built with."""
    return next((base for (_, base), mixed in _MIXED.items() if mixed is cls), cls)
