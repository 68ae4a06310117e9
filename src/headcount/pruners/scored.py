"""What the pruners share that score a fine-tuned model and leave it as it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

import torch
from torch import Tensor

from headcount.batch import Batch
from headcount.errors import HeadcountError, SettingError
from headcount.pruners.base import Needs, Pruner
from headcount.pruners.choice import Keep
from headcount.pruners.settings import PostHocSettings, PrunerSettings

Labels = Literal["given", "none"]


@dataclass(frozen=True, kw_only=True)
class ScoredSettings(PostHocSettings):
    """What pruners can be told that score heads on training data, in runs.

    In Python, give `fit` the batches, and those of `own_answers` to score without labels.

    Attributes:
        sample: share of the training data to score on.
        labels: which labels the scores are found with. "given" takes those of the data. "none" lets
            the model draw them from its own answers, so that those of the data need not be right.
    """

    sample: float = 1.0
    labels: Labels = "given"

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_no_share(self.sample)


def refuse_no_share(sample: float) -> None:
    """Refuse a sample that is not a share of the training data."""
    if not 0 < sample <= 1:
        raise SettingError("sample", sample, "a share of the training data; give one up to 1")


class ScoringData(Protocol):
    """What a pruner that scores may ask a run for."""

    def batches(self, settings: ScoredSettings, rounds: int) -> Iterable[Batch]:
        """Batches of the training data to score on, which are gone through that many times."""

    def metric(self) -> Callable[[], float]:
        """Gives the metric of the model as it is gated now; greater is better."""

    def measuring(self, what: str, times: int) -> Callable[[], float]:
        """The same, with progress: the metric is asked that many times."""


class Scored(Pruner):
    """A pruner that learns nothing while training; call its `fit` before `mask`.

    Args:
        keep: K; None ranks all heads down to the last.
        settings: see `Pruner`.
        **given: see `Pruner`.
    """

    needs: ClassVar[Needs] = "scoring"
    withheld: ClassVar[tuple[str, ...]] = ("commit_at",)  # there is no training to choose in
    asks_for: ClassVar[str]  # what its `fit` takes

    def __init__(
        self, keep: Keep | None, settings: PrunerSettings | str | None = None, **given: Any
    ) -> None:
        super().__init__(keep, settings, **given)
        self.scores: Tensor | None = None  # of each head in the scope

    def signature(self) -> list[str]:
        """Whether the model drew the labels itself."""
        own = getattr(self.settings, "labels", "given") == "none"
        return [*super().signature(), *(["labels:none"] if own else [])]

    def importance(self) -> Tensor:
        """The scores that `fit` found."""
        if self.scores is None:
            raise HeadcountError(
                f"{self.name} has scored no model yet; call fit({self.asks_for}) first"
            )
        return self.scores

    @property
    def ranks_once(self) -> bool:
        """Whether one ranking, down to the last head, serves every K."""
        return True

    def rank_by(self, scores: Sequence[float]) -> None:
        """Take scores that were found before, by flat index, instead of finding them."""
        indices = self.bound().indices
        self.scores = torch.tensor(
            [scores[indices[place]] for place in self.places], dtype=torch.float64
        )
