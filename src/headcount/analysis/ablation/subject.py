"""Whose heads are ablated: a fine-tuned model with evaluation sets and a metric."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
from torch import Tensor
from transformers import PreTrainedModel

from headcount.analysis.ablation.replay import MaskedPasses, batch_size
from headcount.analysis.ablation.trace import Batch
from headcount.errors import HeadcountError
from headcount.heads.blocks import HeadMap
from headcount.heads.find import find_heads
from headcount.heads.mask import HeadMask
from headcount.pruners.michel import importance
from headcount.runs.evaluate import Evaluation
from headcount.runs.progress import Progress, Silent, Told
from headcount.stats.significance import Predictions, Significance, compare, enough_resamples
from headcount.tasks.metrics import accuracy

_LEAST = 2  # examples that a paired test can compare


class Subject(ABC):
    """A fine-tuned model that answers evaluation sets under any mask.

    Attributes:
        name: of the model.
        task: of the task.
        data: what its evaluation sets are parts of, by name; empty if that has none.
        metric: that decides.
        greater_is_better: of the metric.
        model: the model, in evaluation mode.
        heads: its heads.
        progress: who wants to know.
    """

    name: str
    task: str
    data: str = ""
    metric: str
    greater_is_better: bool
    model: PreTrainedModel
    heads: HeadMap
    progress: Progress

    @property
    @abstractmethod
    def sets(self) -> tuple[str, ...]:
        """Names of the evaluation sets; the first is the one to choose on."""

    @abstractmethod
    def evaluate(self, split: str, masks: Sequence[HeadMask]) -> list[Evaluation]:
        """The answers to an evaluation set under each mask."""

    @abstractmethod
    def importance(self) -> Tensor:
        """Michel's importance of every head that is there, on training data."""

    @abstractmethod
    def halved(self) -> Subject:
        """The same with the first evaluation set in two halves."""

    def value(self, evaluation: Evaluation) -> float:
        """The metric that decides."""
        return evaluation.metrics[self.metric]

    def better_by(self, value: float, whole: float) -> float:
        """How much a value of the metric is better than another, whichever way it points."""
        return value - whole if self.greater_is_better else whole - value

    def compared(
        self, split: str, whole: Evaluation, others: Sequence[Evaluation], alpha: float
    ) -> list[Significance]:
        """The two-sided paired test over the examples that fits the metric, for each of the others.

        Args:
            split: the evaluation set.
            whole: answers of the unpruned model.
            others: answers under masks.
            alpha: the level; with the number of tests it says how fine their p-values must be.
        """
        resamples = enough_resamples(len(others), alpha)
        signature, positive = self._signature(split), self._positive()
        first = [_as_predictions(whole)]
        self.progress.begin(f"{len(others)} paired tests", len(others))
        return [
            compare(self.metric, first, [_as_predictions(other)], signature, positive, resamples)
            for other in Told(others, self.progress)
        ]

    def without(self, indices: Sequence[int]) -> HeadMask:
        """All heads but these."""
        return HeadMask.all(self.heads) - HeadMask.from_indices(self.heads, indices)

    def _signature(self, split: str) -> str:
        return ""

    def _positive(self) -> str | None:
        return None


def refuse_few(split: str, examples: int) -> None:
    """Tell that a set has too few examples for a paired test."""
    if examples < _LEAST:
        raise HeadcountError(
            f"{split} has {examples} example{'' if examples == 1 else 's'}, expected at least "
            f"{_LEAST}; a paired test compares examples, so give more"
        )


def _as_predictions(side: Evaluation) -> Predictions:
    # Losses need no reference, but a test wants one for each.
    gold = side.gold if side.gold is not None else np.zeros(len(side.predictions)).tolist()
    return Predictions(tuple(side.predictions), tuple(gold))


class BatchSubject(Subject):
    """A model and batches of your own; the metric is the accuracy of its logits.

    Args:
        model: gives logits for what the batches hold.
        batches: of each evaluation set by its name, with `labels`; −100 is not counted. Each set
            is a list of batches.
        training: batches for `importance`; those of the first set if left out.
        name: of the model.
        progress: who wants to know.
    """

    metric, greater_is_better, task = "accuracy", True, "batches"

    def __init__(
        self,
        model: PreTrainedModel,
        batches: Mapping[str, Sequence[Batch]],
        training: Sequence[Batch] | None = None,
        name: str = "the model",
        progress: Progress | None = None,
    ) -> None:
        self.model, self.name = model.eval(), name
        self.progress = Silent() if progress is None else progress
        self.heads = find_heads(model)
        self._batches = batches
        for split, some in batches.items():
            refuse_few(split, sum(batch_size(batch) for batch in some))
        self._training = next(iter(batches.values())) if training is None else training
        self._passes = MaskedPasses(model, next(iter(batches.values()))[0])

    @property
    def sets(self) -> tuple[str, ...]:
        """As they were named."""
        return tuple(self._batches)

    def evaluate(self, split: str, masks: Sequence[HeadMask]) -> list[Evaluation]:
        """By shared passes; a prediction for every label that counts."""
        answers: list[list[int]] = [[] for _ in masks]
        gold: list[int] = []
        for batch in self._batches[split]:
            counted = batch["labels"] != -100
            gold += batch["labels"][counted].tolist()
            taken = self._passes.run(batch, masks, partial(_said, where=counted))
            for given, part in zip(answers, taken, strict=True):
                given += part.tolist()
        return [Evaluation({"accuracy": accuracy(row, gold)}, row, gold) for row in answers]

    def importance(self) -> Tensor:
        """On the training batches."""
        return importance(self.model, self.heads, HeadMask.all(self.heads), self._training)

    def halved(self) -> BatchSubject:
        """Every other example of every batch."""
        split, batches = next(iter(self._batches.items()))
        halves = {
            f"{split}, {name} half": [
                {key: value[start::2] for key, value in batch.items()}
                for batch in batches
                if batch_size(batch) > start  # one example alone has no second half
            ]
            for start, name in enumerate(("first", "second"))
        }
        return BatchSubject(self.model, halves, self._training, self.name, self.progress)


def _said(logits: Tensor, where: Tensor) -> Tensor:
    return logits.argmax(-1)[where]
