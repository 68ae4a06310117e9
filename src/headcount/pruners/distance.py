"""How far a model's answers are from those that it gave before something was changed.

No labels are read. Far fewer examples are needed than for a loss, which differs much from one
example to another. The distance to a model's own answers is 0 for all of them at first.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from headcount.batch import (
    Batch,
    batch_size,
    evaluating,
    gives_vectors,
    loss_of,
    parts_of,
    predicts_next_token,
    without_cache,
)
from headcount.heads.blocks import Kind
from headcount.surgery.outputs import tokens_among

LIKELY = 64  # answers that are told apart: a vocabulary has many thousands, most never given
TOKENS = 1024  # of a language model at once
EVERY = 4  # of the places of its texts, each fourth is compared


class Answers(NamedTuple):
    """What a model says at each place, without the unlikely answers.

    Attributes:
        likely: numbers of the likeliest answers, a row per place.
        logs: the logarithms of their probabilities, and of that of all others together.
    """

    likely: Tensor
    logs: Tensor

    @classmethod
    def of(cls, logits: Tensor) -> Answers:
        """The answers with the highest logits, a row per place."""
        likely = logits.topk(min(LIKELY, logits.shape[-1]), dim=-1).indices
        return cls(likely, _logs(logits, likely))

    def divergence(self, logits: Tensor) -> float:
        """The sum over places of the Kullback-Leibler divergence of other logits from these."""
        other = _logs(logits, self.likely)
        each = self.logs.exp() * (self.logs - other)
        return float(each.where(self.logs > -math.inf, 0.0).sum())


def _logs(logits: Tensor, likely: Tensor) -> Tensor:
    """Log-probabilities of some answers, and of all others together."""
    logs = (logits if logits.dtype == torch.float64 else logits.float()).log_softmax(-1)
    own = logs.gather(-1, likely)
    rest = logs.scatter(-1, likely, -math.inf).logsumexp(-1, keepdim=True)
    return torch.cat([own, rest], -1).cpu().double()  # not all devices have float64


class Distance:
    """Measures a model against its own answers of the moment when this is made.

    Classes and tokens are compared by the divergence of their probabilities, numbers by squared
    differences, and vectors by 1 - cosine. A model without logits is measured by its loss. Of a
    language model, every fourth place is compared: the head of a small one takes most of the time.

    Args:
        model: run in evaluation mode.
        batches: what it takes. Labels are read only if it has no logits, or if its decoder makes
            its inputs from them.

    Attributes:
        place: the number of the batch that goes through the model now.
        batches: these batches; of a language model, in parts.
    """

    def __init__(self, model: nn.Module, batches: Sequence[Batch]) -> None:
        self.model, self.batches = model, list(batches)
        self.place = 0  # of the batch that is answered
        self._keeps = False
        if predicts_next_token(model) and all("input_ids" in batch for batch in batches):
            self.batches = [part for batch in batches for part in parts_of(batch, TOKENS)]
            self._keeps = self._keeps_places()
        self._before: list[list[Tensor | Answers]] = [
            [self._kept(part) for part in self._said(batch)] for batch in self.batches
        ]

    def now(self) -> float:
        """The mean distance of an answer; infinite if one is too large for the model's type."""
        total = number = 0.0
        for place, batch in enumerate(self.batches):
            self.place, before = place, self._before[place]
            if not before:
                total += batch_size(batch) * self._loss(batch)
                number += batch_size(batch)
            for old, new in zip(before, self._said(batch), strict=bool(before)):
                total += self._between(old, new)
                number += len(new)
        mean = total / max(number, 1.0)
        return mean if math.isfinite(mean) else math.inf

    def _said(self, batch: Batch) -> Iterator[Tensor]:
        """What the model says to each example, a row per place; nothing if it has no logits."""
        said, batch = self._logits(batch)
        if not isinstance(said, Tensor) or said.dim() > 3 or len(said) != batch_size(batch):
            return
        if said.dim() < 3:
            yield said
            return
        kind: Kind = "decoder" if _is_encoder_decoder(self.model) else "encoder"
        for place, rows in enumerate(said):  # one at a time: those of a vocabulary are large
            one = {
                name: value[place : place + 1]
                for name, value in batch.items()
                if isinstance(value, Tensor) and value.dim() and len(value) == len(said)
            }
            yield tokens_among(rows[None], self.model, one, kind)

    def _logits(self, batch: Batch) -> tuple[Any, Batch]:
        """The logits, and the batch as it is at their places."""
        given = {**without_cache(self.model), **batch}
        if not _is_encoder_decoder(self.model):
            given.pop("labels", None)  # for which a loss would be computed
        if self._keeps:
            ids = given["input_ids"]
            places = given["logits_to_keep"] = _places(ids)
            batch = {
                name: value[:, places]
                for name, value in batch.items()
                if isinstance(value, Tensor) and value.shape[:2] == ids.shape
            }
        with torch.no_grad(), evaluating(self.model):
            return getattr(self.model(**given), "logits", None), batch

    def _keeps_places(self) -> bool:
        """Whether the model gives the logits of chosen places."""
        if "logits_to_keep" not in inspect.signature(self.model.forward).parameters:
            return False
        one = next(parts_of(self.batches[0], 1))
        inputs = {name: value for name, value in one.items() if name != "labels"}
        places = _places(inputs["input_ids"])
        given = {**without_cache(self.model), **inputs}
        with torch.no_grad(), evaluating(self.model):
            wanted = self.model(**given).logits[:, places]
            some = self.model(**given, logits_to_keep=places).logits
        return some.shape == wanted.shape and torch.allclose(some, wanted, rtol=1e-2, atol=1e-3)

    def _kept(self, said: Tensor) -> Tensor | Answers:
        return said.float() if self._are_numbers(said) else Answers.of(self._choices(said))

    def _between(self, old: Tensor | Answers, new: Tensor) -> float:
        if isinstance(old, Answers):
            return old.divergence(self._choices(new))
        if gives_vectors(self.model):
            return float((1 - torch.cosine_similarity(old, new.float())).sum())
        return float((old - new.float()).square().sum())

    def _are_numbers(self, said: Tensor) -> bool:
        return gives_vectors(self.model) or said.shape[-1] == 1 or self._problem == "regression"

    def _choices(self, said: Tensor) -> Tensor:
        """Logits of which one is the answer; of several labels, each is given or not."""
        if self._problem != "multi_label_classification":
            return said
        return torch.stack([said, torch.zeros_like(said)], -1).flatten(0, 1)

    @property
    def _problem(self) -> str | None:
        return getattr(getattr(self.model, "config", None), "problem_type", None)

    def _loss(self, batch: Batch) -> float:
        with torch.no_grad(), evaluating(self.model):
            return float(loss_of(self.model, {**without_cache(self.model), **batch}))


def _places(ids: Tensor) -> list[int]:
    """The places of texts that are compared, with the last one.

    A list is on no device: the head of a large model may be on another one than the texts.
    """
    length = ids.shape[1]
    return list(range((length - 1) % EVERY, length, EVERY))


def _is_encoder_decoder(model: nn.Module) -> bool:
    return bool(getattr(getattr(model, "config", None), "is_encoder_decoder", False))
