"""What the pruners share that score a fine-tuned model and leave it as it is."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

import torch
from torch import Tensor, nn

from headcount.batch import Batch
from headcount.errors import HeadcountError, SettingError
from headcount.heads.blocks import HeadMap
from headcount.heads.find import find_heads
from headcount.heads.mask import HeadMask
from headcount.pruners.base import Needs, Pruner
from headcount.pruners.choice import Keep
from headcount.pruners.settings import PostHocSettings, PrunerSettings
from headcount.pruners.units import Units
from headcount.surgery.outputs import Output, outputs_of

Labels = Literal["given", "none"]


@dataclass(frozen=True, kw_only=True)
class ScoredSettings(PostHocSettings):
    """Settings of pruners that score heads on training data, in runs.

    In Python, give `fit` the batches, and those of `own_answers` to score without labels.

    Attributes:
        sample: share of the training data to score on. A smaller one is faster.
        labels: labels to find the scores with. `given` takes those of the data. `none` lets the
            model draw them from its own answers, so that those of the data need not be right.
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

    def told(self, what: str, times: int) -> Callable[[int], None]:
        """A function that reports how many times something was done, and of how many."""

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

    def outputs(self, model: nn.Module) -> list[tuple[Output, int]]:
        """The output projections of the scope, each with the number of inputs that a unit has."""
        return unit_outputs(model, self.bound(), self.units)

    def kept_units(self) -> list[Tensor]:
        """Which units of each block the mask keeps, for the blocks that have heads."""
        kept, indices = self.mask().kept, self.bound().indices
        stays = torch.tensor([indices[place] in kept for place in self.places])
        by_unit = self.units.total(stays.double()) > 0
        return [part for part in by_unit.split(list(self.units.per_block)) if len(part)]

    def insist_on(self, units: Tensor) -> None:
        """Raise the scores of these units above all others, so that the mask keeps exactly them.

        Args:
            units: True for each unit that stays. Each block must keep as many as before.
        """
        scores = self.importance()
        most = float(self.units.total(scores).max()) or 1.0
        self.scores = scores + 2 * most * self.units.spread(units.double())


class ScoredOnData(Scored):
    """A pruner that goes through its data once.

    Args:
        keep: K; None ranks all heads down to the last.
        settings: see `Pruner`.
        **given: see `Pruner`.
    """

    settings_class: ClassVar[type[PrunerSettings]] = ScoredSettings
    asks_for: ClassVar[str] = "model, batches"

    @abstractmethod
    def fit(self, model: nn.Module, batches: Iterable[Batch]) -> HeadMask:
        """Score the heads. The heads of a group get equal parts of what the group is worth.

        Args:
            model: the fine-tuned model; it is not changed.
            batches: what the model takes, gone through once.
        """

    def score(self, model: nn.Module, data: ScoringData) -> None:
        """Score the heads on a sample of the training data."""
        assert isinstance(self.settings, ScoredSettings)
        self.fit(model, data.batches(self.settings, 1))


class ScoredOnce(ScoredOnData):
    """A pruner that finds what each unit is worth by itself."""

    @abstractmethod
    def worth(self, model: nn.Module, batches: Iterable[Batch]) -> Tensor:
        """What each unit of the scope is worth."""

    def fit(self, model: nn.Module, batches: Iterable[Batch]) -> HeadMask:
        """Score the heads; see `ScoredOnData`."""
        self.bind(find_heads(model))
        self.scores = self.units.divided(self.worth(model, batches))
        return self.mask()


def unit_outputs(model: nn.Module, heads: HeadMap, units: Units) -> list[tuple[Output, int]]:
    """The output projections of these units' blocks, each with the inputs that a unit has."""
    sizes = {block.name: size for block, size in zip(units.blocks, units.sizes, strict=True)}
    return [
        (output, output.block.head_size * sizes[output.block.name])
        for output in outputs_of(model, heads, HeadMask.all(heads))
        if output.block.name in sizes
    ]


def unit_sums(values: Tensor, width: int) -> Tensor:
    """The sum of each unit's values, from one value per input of an output projection."""
    by_unit: Tensor = values.unflatten(0, (-1, width))
    return by_unit.sum(1)
