"""Whose heads are ablated: a fine-tuned model with evaluation sets and a metric."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
from torch import Tensor
from transformers import PreTrainedModel

from headcount.errors import HeadcountError
from headcount.heads.blocks import HeadMap
from headcount.heads.mask import HeadMask
from headcount.report.run_record import Predictions
from headcount.report.significance import Significance, compare, enough_resamples
from headcount.runs.evaluate import Evaluation
from headcount.runs.progress import Progress, Told

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
