"""Whose heads are ablated: a model with evaluation sets and a metric, which answers under any mask.

`Subject` is what an ablation needs. `BatchSubject` is one from your own batches; `TaskSubject`, in
`task_subject.py`, is one from the settings of a run.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
from torch import Tensor
from transformers import PreTrainedModel

from headcount.analysis.ablation.replay import MaskedPasses
from headcount.batch import Batch, batch_size
from headcount.errors import HeadcountError
from headcount.heads.blocks import HeadMap
from headcount.heads.find import find_heads
from headcount.heads.mask import HeadMask
from headcount.pruners.michel import importance
from headcount.runs.progress import Progress, Silent, Told
from headcount.runs.trainer import Evaluation
from headcount.stats.significance import Predictions, Significance, compare, enough_resamples
from headcount.tasks.metrics import accuracy

_LEAST = 2  # examples that a paired test needs


class Subject(ABC):
    """A fine-tuned model that answers evaluation sets under any mask.

    Attributes:
        name: name of the model.
        task: name of the task.
        data: name of the data that the evaluation sets are parts of; empty if it has none.
        metric: name of the metric.
        greater_is_better: whether a larger value of the metric is better.
        model: the model, in evaluation mode.
        heads: the heads of the model.
        progress: receives each stage and step, for a progress bar.
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
        """Names of the evaluation sets; heads are chosen on the first."""

    @abstractmethod
    def evaluate(self, split: str, masks: Sequence[HeadMask]) -> list[Evaluation]:
        """Answer an evaluation set under each mask."""

    @abstractmethod
    def importance(self) -> Tensor:
        """Michel's importance of every head of the model, scored on training data."""

    @abstractmethod
    def halved(self) -> Subject:
        """The same subject, with the first evaluation set split into two halves."""

    def value(self, evaluation: Evaluation) -> float:
        """The value of the metric."""
        return evaluation.metrics[self.metric]

    def better_by(self, value: float, whole: float) -> float:
        """How much better a value is than another; for a loss, smaller is better."""
        return value - whole if self.greater_is_better else whole - value

    def compared(
        self, split: str, whole: Evaluation, others: Sequence[Evaluation], alpha: float
    ) -> list[Significance]:
        """Test each mask against the unpruned model: two-sided, paired over the examples.

        Args:
            split: name of the evaluation set.
            whole: answers of the unpruned model.
            others: answers under each mask.
            alpha: significance level. A smaller one, or more masks, needs more resamples.
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
        """The mask of all heads except these."""
        return HeadMask.all(self.heads) - HeadMask.from_indices(self.heads, indices)

    def _signature(self, split: str) -> str:
        return ""

    def _positive(self) -> str | None:
        return None


class BatchSubject(Subject):
    """A model with your own batches; the metric is the accuracy of its logits.

    Args:
        model: a model that returns logits for the batches.
        batches: the batches of each evaluation set, by its name. They need `labels`; a label of
            −100 does not count.
        training: batches to score `importance` on; None takes those of the first set.
        name: name of the model, for titles.
        progress: receives each stage and step, for a progress bar; None shows nothing.
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
        """The names of the evaluation sets, as given."""
        return tuple(self._batches)

    def evaluate(self, split: str, masks: Sequence[HeadMask]) -> list[Evaluation]:
        """Predict every label that counts; the masks share forward passes."""
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
        """Score the heads on the training batches."""
        return importance(self.model, self.heads, HeadMask.all(self.heads), self._training)

    def halved(self) -> BatchSubject:
        """Put every other example of each batch into the second half."""
        split, batches = next(iter(self._batches.items()))
        halves = {
            f"{split}, {name} half": [
                {key: value[start::2] for key, value in batch.items()}
                for batch in batches
                if batch_size(batch) > start  # a batch of one example is in the first half only
            ]
            for start, name in enumerate(("first", "second"))
        }
        return BatchSubject(self.model, halves, self._training, self.name, self.progress)


def chosen_set(subject: Subject, split: str | None, place: int = 0) -> str:
    """The evaluation set of this name; if None, the one at this place."""
    names = subject.sets
    if split is None:
        return names[place]
    if split not in names:
        raise HeadcountError(
            f"there is no evaluation set {split!r}; this task has {', '.join(names)}"
        )
    return split


def refuse_few(split: str, examples: int) -> None:
    """Raise if a set has too few examples for a paired test."""
    if examples < _LEAST:
        raise HeadcountError(
            f"{split} has {examples} example{'' if examples == 1 else 's'}, expected at least "
            f"{_LEAST}; a paired test compares examples, so give more"
        )


def _as_predictions(side: Evaluation) -> Predictions:
    # Losses have no references, but the tests expect one per example.
    gold = side.gold if side.gold is not None else np.zeros(len(side.predictions)).tolist()
    return Predictions(tuple(side.predictions), tuple(gold))


def _said(logits: Tensor, where: Tensor) -> Tensor:
    return logits.argmax(-1)[where]
