"""Batches, and how a model is run on them: its loss, in evaluation mode, without a cache."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from headcount.errors import HeadcountError

IGNORED = -100  # the label of a place without one
Batch = Mapping[str, Any]  # the keyword arguments of one forward pass


def batch_size(batch: Batch) -> int:
    """The number of examples."""
    return next(value.shape[0] for value in batch.values() if isinstance(value, Tensor))


def parts_of(batch: Batch, tokens: int) -> Iterator[Batch]:
    """A batch of texts in parts of at most this many tokens; of one example at least."""
    rows = max(tokens // batch["input_ids"].shape[1], 1)
    for start in range(0, batch_size(batch), rows):
        yield {
            name: value[start : start + rows] if isinstance(value, Tensor) else value
            for name, value in batch.items()
        }


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


def without_answers(model: nn.Module, batch: Batch) -> dict[str, Any]:
    """A batch for a pass whose answer is not read: no cache, and no logits where that is possible.

    An encoder-decoder makes the inputs of its decoder from the labels, and keeps them.
    """
    given = {**without_cache(model), **batch}
    if (
        predicts_next_token(model)
        and "logits_to_keep" in inspect.signature(model.forward).parameters
    ):
        given.pop("labels", None)
        given["logits_to_keep"] = 1
    return given


@contextmanager
def other_forward(module: nn.Module, forward: Callable[..., Any]) -> Iterator[None]:
    """Replace the forward pass of a module until the block ends."""
    own = vars(module).get("forward")
    has_own = "forward" in vars(module)
    module.forward = forward
    try:
        yield
    finally:
        if has_own:
            module.forward = own  # type: ignore[assignment]
        else:
            del module.forward


def answers_per_example(model: nn.Module, batch: Batch) -> Tensor | None:
    """How many labels each example of a batch has; None where each has one, or none are given."""
    labels = batch.get("labels")
    if not isinstance(labels, Tensor) or labels.dim() < 2 or labels.is_floating_point():
        return None
    if predicts_next_token(model):
        labels = labels[:, 1:]  # the first token has no place that could predict it
    return (labels != IGNORED).flatten(1).sum(1)


def predicts_next_token(model: nn.Module) -> bool:
    """Whether the answer at a place belongs to the label of the next place."""
    return type(model).__name__ in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values()


def gives_vectors(model: nn.Module) -> bool:
    """Whether the answer to a text is a vector, as a sentence encoder's, and not a class."""
    return bool(getattr(model, "gives_vectors", False))
