"""Gradient importance (Michel, Levy and Neubig 2019): how much the loss feels each head's gate.

The importance of a head is the mean over examples of the absolute gradient of the loss with
respect to its gate (eq. 21 of the DSP paper), found in one backward pass per batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from headcount.batch import Batch
from headcount.errors import HeadcountError, SettingError
from headcount.gates import masked
from headcount.heads.blocks import HeadMap
from headcount.heads.find import find_heads
from headcount.heads.mask import HeadMask
from headcount.pruners.choice import choose, normalised_by_block
from headcount.pruners.gate_gradients import Granularity, gate_gradients
from headcount.pruners.scored import Scored, ScoredSettings, ScoringData
from headcount.pruners.settings import PrunerSettings


@dataclass(frozen=True)
class MichelSettings(ScoredSettings):
    """How heads are scored and removed.

    Attributes:
        step: number of heads to remove before the rest is scored again; below 1, a share of them.
            None scores once and removes all at once, which is faster.
        until: stop before the metric falls below this share of the unpruned model's. The keep may
            then be left out. For runs only: in Python, give `fit` a function.
        granularity: where the absolute value is taken: per `example` as in the paper, per `token`
            as in its authors' code, or per `batch` as in others'.
        normalise: divide the scores of each block by their ℓ2 norm, as the paper does.
    """

    step: int | float | None = None
    until: float | None = None
    granularity: Granularity = "example"
    normalise: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.step is not None and not self.step > 0:
            raise SettingError(
                "step",
                self.step,
                "a number of heads from 1 or a share of them; leave it out to remove all at once",
            )
        if self.until is not None and not 0 < self.until <= 1:
            raise SettingError("until", self.until, "a share of the metric, such as 0.9")


class Michel(Scored):
    """Rank the heads of a fine-tuned model by their gradient importance, and keep the best K.

    It learns nothing while training: call `fit` with data before `mask`. The score of a group is
    the sum of its heads' scores. So the absolute value stays that of each head, as in the paper:
    heads of a group that pull in opposite directions do not cancel.

    Args:
        keep: K; None ranks all heads down to the last.
        settings: see `MichelSettings`.
        **given: see `Pruner`.
    """

    name: ClassVar[str] = "michel"
    settings_class: ClassVar[type[PrunerSettings]] = MichelSettings
    asks_for: ClassVar[str] = "model, batches"
    settings: MichelSettings

    @classmethod
    def needs_keep(cls, settings: PrunerSettings) -> bool:
        """Not with `until`, which says when to stop; a keep is then the fewest heads."""
        return not (isinstance(settings, MichelSettings) and settings.until is not None)

    @property
    def ranks_once(self) -> bool:
        """Not with `until`: where it stops is found on the way."""
        return self.settings.until is None

    @property
    def rounds(self) -> int:
        """How often the data is gone through, once the heads are known."""
        return len(list(self._course()))

    def _course(self) -> Iterator[int]:
        """How many heads are left after each step, down to K."""
        left, step = len(self.places), self._at_a_time()
        while left > self.count:
            left = max(self.count, self.units.after(left, step))
            yield left

    def _at_a_time(self) -> int:
        all_heads = len(self.places)
        step = self.settings.step or all_heads
        return max(1, round(step * all_heads)) if step < 1 else int(step)

    def fit(
        self,
        model: nn.Module,
        batches: Iterable[Batch],
        until: Callable[[HeadMask], bool] | None = None,
    ) -> HeadMask:
        """Score the heads and remove them, all at once or step by step, down to K.

        Args:
            model: the fine-tuned model; it is not changed.
            batches: what the model takes, labels included; gone through once per step, so give a
                list or a loader.
            until: asked with the mask after each step whether it is still good enough; the first
                that is not, and all after it, are not taken.
        """
        heads = find_heads(model)
        self.bind(heads)
        mask, left = HeadMask.all(heads), len(self.places)
        rank = torch.zeros(len(heads), dtype=torch.float64)
        for smaller in self._course():
            scores = importance(
                model, heads, mask, batches, self.settings.granularity, self.settings.normalise
            )
            present = torch.tensor([index in mask.kept for index in heads.indices])
            # A head that stays ranks above all that went before it.
            rank = torch.where(
                present, scores / (scores.max() + 1e-300) + 2.0 * (len(heads) - left), rank
            )
            chosen = choose(heads, self.scope, torch.where(present, scores, -1.0), smaller)
            if until is not None and not until(chosen):
                self.count = left
                break
            mask, left = chosen, smaller
        self.scores = rank[self.places]
        return self.mask()

    def score(self, model: nn.Module, data: ScoringData) -> None:
        """Score the heads on a sample of the training data."""
        self.bind(find_heads(model))
        batches = data.batches(self.settings, self.rounds)
        share = self.settings.until
        until = None if share is None else _good_enough(model, data.metric(), share)
        self.fit(model, batches, until)


def _good_enough(
    model: nn.Module, score: Callable[[], float], share: float
) -> Callable[[HeadMask], bool]:
    """Whether a mask leaves the model at least this share of its metric."""
    whole = score()
    floor = share * whole if whole > 0 else whole / share

    def good_enough(mask: HeadMask) -> bool:
        with masked(model, mask):
            return score() >= floor

    return good_enough


def importance(
    model: nn.Module,
    heads: HeadMap,
    mask: HeadMask,
    batches: Iterable[Batch],
    granularity: Granularity = "example",
    normalise: bool = True,
) -> Tensor:
    """The gradient importance of every head that is there now, with the gates at the mask.

    Args:
        model: gives a `loss` that is a mean over the batch; its parameters get no gradients.
        heads: its heads.
        mask: the gates' values; the gradient at a closed gate is that of opening it.
        batches: what the model takes, labels included.
        granularity: where the absolute value is taken.
        normalise: divide the scores of each block by their ℓ2 norm.
    """
    total = torch.zeros(len(heads), dtype=torch.float64)
    examples = 0
    for batch in gate_gradients(model, heads, mask, batches, granularity):
        total += torch.cat([rows.abs().sum(0) for rows in batch.rows])
        examples += batch.examples
    if not examples:
        raise HeadcountError("there is no data to score the heads on; give at least one batch")
    scores = total / examples
    return normalised_by_block(scores, heads.blocks) if normalise else scores
