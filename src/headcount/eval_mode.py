"""Look at a model as it is when it is used, and leave it as it was."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Keep a model from training (no dropout) for as long as the block lasts.

    Every module gets its own mode back, since a frozen part of a model that trains may not train.
    """
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


def without_cache(model: nn.Module) -> dict[str, bool]:
    """What to call a model with that would keep the keys and values of every layer otherwise."""
    taken = inspect.signature(model.forward).parameters
    return {"use_cache": False} if "use_cache" in taken else {}
