"""Batches, and how a model is run on them: its loss, in evaluation mode, without a cache."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from headcount.errors import HeadcountError

Batch = Mapping[str, Any]  # the keyword arguments of one forward pass


def batch_size(batch: Batch) -> int:
    """The number of examples."""
    return next(value.shape[0] for value in batch.values() if isinstance(value, Tensor))


def loss_of(model: nn.Module, batch: Batch) -> Tensor:
    """The loss of a batch with labels."""
    loss = getattr(model(**batch), "loss", None)
    if loss is None:
        raise HeadcountError(
            f"{type(model).__name__} gave no loss for this batch; put labels into the batches"
        )
    return loss  # type: ignore[no-any-return]


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put a model into evaluation mode (no dropout) until the block ends.

    Every module gets its own mode back: a frozen part may be in evaluation mode while others train.
    """
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


def without_cache(model: nn.Module) -> dict[str, bool]:
    """The argument with which a model keeps no keys and values; empty if it takes none."""
    taken = inspect.signature(model.forward).parameters
    return {"use_cache": False} if "use_cache" in taken else {}
