"""Labels that a model draws itself, so that heads can be scored on data without labels.

Scores ask how the loss feels a head. With labels drawn from the model's own answers, they ask how
the answers feel it: the second moment of such gradients is the curvature of the distance between
the answers before and after a change (the Gauss–Newton or Fisher matrix).
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from headcount.batch import (
    IGNORED,
    Batch,
    evaluating,
    gives_vectors,
    predicts_next_token,
    without_cache,
)
from headcount.errors import HeadcountError


def own_answers(model: nn.Module, batches: Iterable[Batch], seed: int = 0) -> list[Batch]:
    """Batches with labels that are drawn from the model's answers to them.

    A class is drawn with the probability that the model gives it, and so is every next token, and
    each of several labels. A number gets a random step. A sentence encoder needs no labels.

    Args:
        model: the model as it is.
        batches: what it takes; labels in them are not read.
        seed: draws the labels.

    Raises:
        HeadcountError: its answers cannot be drawn at once, as those of an encoder-decoder.
    """
    if getattr(getattr(model, "config", None), "is_encoder_decoder", False):
        raise HeadcountError(
            f"{type(model).__name__} writes its answers word by word, so none can be drawn at "
            "once; score it on data with labels"
        )
    found: list[Batch] = []
    with torch.no_grad(), evaluating(model):
        for place, batch in enumerate(batches):
            inputs = {name: value for name, value in batch.items() if name != "labels"}
            if not gives_vectors(model):
                logits = _logits(model, inputs)
                draw = torch.Generator(logits.device).manual_seed(hash((seed, place)) % 2**32)
                inputs["labels"] = _drawn(model, logits, inputs, draw)
            found.append(inputs)
    return found


def _logits(model: nn.Module, inputs: Batch) -> Tensor:
    logits = getattr(model(**{**without_cache(model), **inputs}), "logits", None)
    if not isinstance(logits, Tensor):
        raise HeadcountError(
            f"{type(model).__name__} gives no logits to draw an answer from; score it on data with "
            "labels"
        )
    return logits.float()


def _drawn(model: nn.Module, logits: Tensor, batch: Batch, draw: torch.Generator) -> Tensor:
    if logits.dim() == 3:
        return _tokens(logits, batch, draw, shift=predicts_next_token(model))
    problem = getattr(getattr(model, "config", None), "problem_type", None)
    if problem == "multi_label_classification":
        return torch.bernoulli(logits.sigmoid(), generator=draw)
    if problem == "regression" or logits.shape[-1] == 1:
        step = torch.randn(logits.shape, generator=draw, device=logits.device)
        return (logits + step).squeeze(-1)
    return torch.multinomial(logits.softmax(-1), 1, generator=draw).squeeze(-1)


def _tokens(logits: Tensor, batch: Batch, draw: torch.Generator, shift: bool) -> Tensor:
    """A token or class for every position that is not padding; shifted for next tokens."""
    drawn = [torch.multinomial(row.softmax(-1), 1, generator=draw).squeeze(-1) for row in logits]
    labels = torch.stack(drawn)
    if shift:
        labels = nn.functional.pad(labels[:, :-1], (1, 0), value=IGNORED)
    seen = batch.get("attention_mask")
    return labels if seen is None else labels.masked_fill(seen == 0, IGNORED)
