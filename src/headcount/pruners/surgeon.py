"""Surgeon: the heads whose loss the others can make up for are the first to go.

Michel et al. ask how much the loss feels a head as the model stands. What counts after a cut is how
much it misses the head once the output weights of those that stay are fitted anew, which a head
that says what others say too survives least. That is Optimal Brain Surgeon (Hassibi and Stork
1993), with whole heads for weights.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from headcount.batch import Batch, batch_size
from headcount.errors import SettingError
from headcount.heads.find import find_heads
from headcount.heads.mask import HeadMask
from headcount.pruners.choice import Scope, choose
from headcount.pruners.curvature import curvatures
from headcount.pruners.scored import Scored, ScoredSettings, ScoringData
from headcount.pruners.settings import PrunerSettings
from headcount.pruners.units import Units
from headcount.surgery.compensate import RIDGE, compensate
from headcount.surgery.outputs import outputs_of
from headcount.surgery.remove import remove_heads

FITTED_ON = 512  # examples, between two rankings


@dataclass(frozen=True)
class SurgeonSettings(ScoredSettings):
    """How the ranking is made.

    Attributes:
        halve: rank again whenever half of the heads are gone; see `removal_costs`.
        ridge: what a change of the output weights costs, in units of the mean square of the values.
        compensate: fit the output weights of the heads that stay, as the ranking expects.
    """

    halve: bool = False
    ridge: float = RIDGE
    compensate: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_no_ridge(self.ridge)


def refuse_no_ridge(ridge: float) -> None:
    """Refuse a ridge that would not hold the weights."""
    if not ridge > 0:
        raise SettingError("ridge", ridge, f"a number above 0; try {RIDGE:g}")


class Surgeon(Scored):
    """Rank the heads of a fine-tuned model by what the others cannot make up for.

    A group costs what is lost when all its heads go at once; each head's score is an equal part.

    It learns nothing while training: call `fit` with data before `mask`, and `compensate` with the
    mask before the cut, which changes the weights as the ranking expects.

    Args:
        keep: K; None ranks all heads.
        settings: see `SurgeonSettings`.
        **given: see `Pruner`.
    """

    name: ClassVar[str] = "surgeon"
    settings_class: ClassVar[type[PrunerSettings]] = SurgeonSettings
    asks_for: ClassVar[str] = "model, batches"
    settings: SurgeonSettings

    @property
    def rounds(self) -> int:
        """How often it goes through all of the data: for each ranking."""
        self.bound()
        return 1 + halvings(self.units, self.units.heads, self.count) if self.settings.halve else 1

    def fit(self, model: nn.Module, batches: Iterable[Batch]) -> HeadMask:
        """Find out what the loss of each head costs.

        Args:
            model: the fine-tuned model; it is not changed.
            batches: what the model takes, labels included; gone through `rounds` times.
        """
        self.bind(find_heads(model))
        halve, ridge = self.settings.halve, self.settings.ridge
        again = list(batches) if halve and isinstance(batches, Iterator) else batches
        found = removal_costs(model, self.scope, again, ridge, self.count if halve else None)
        self.scores = torch.tensor(list(found.values()), dtype=torch.float64)
        return self.mask()

    def score(self, model: nn.Module, data: ScoringData) -> None:
        """Rank the heads on a sample of the training data."""
        self.bind(find_heads(model))
        self.fit(model, data.batches(self.settings, self.rounds))

    def signature(self) -> list[str]:
        """Whether heads were ranked again on the way."""
        return [*super().signature(), *(["halve"] if self.settings.halve else [])]


def removal_costs(
    model: nn.Module,
    scope: Scope,
    batches: Iterable[Batch],
    ridge: float,
    halve_to: int | None = None,
) -> dict[int, float]:
    """What the loss of each head costs, by its number, of the heads in the scope that are there.

    All of them are ranked around the model as it is, which says little about what is left when most
    are gone. With `halve_to`, half of the heads are cut from a copy, the others are fitted to make
    up for them, and ranked anew around that. What they cost then comes on top of the most that one
    which is gone did, so that those that stay longest are worth most.

    Args:
        model: fine-tuned, cut before or not; it is not changed.
        scope: which heads.
        batches: what the model takes, labels included.
        ridge: what a change of the output weights costs, in units of the mean square of the values.
        halve_to: do so for as long as more than this many stay; None ranks once.
    """
    found: dict[int, float] = {}
    here, before = model, 0.0
    seen: list[Batch] = []
    while True:
        asked = batches if seen or halve_to is None else _noted(batches, seen)
        now = {i: before + rise for i, rise in _removal_costs(here, scope, asked, ridge).items()}
        found |= now
        heads = find_heads(here)
        units = scope.units(heads)
        if halve_to is None or not halvings(units, len(now), halve_to):
            return found
        worth = torch.tensor([now.get(i, 0.0) for i in heads.indices], dtype=torch.float64)
        stays = choose(heads, scope, worth, _half(units, len(now)))
        before = max(rise for i, rise in now.items() if i not in stays.kept)
        here = copy.deepcopy(model) if here is model else here
        compensate(here, stays, _some_of(seen), ridge)
        remove_heads(here, stays)


def _noted(batches: Iterable[Batch], seen: list[Batch]) -> Iterator[Batch]:
    """The batches, which are kept as they come by."""
    for batch in batches:
        seen.append(batch)
        yield batch


def _some_of(batches: list[Batch]) -> list[Batch]:
    """Batches from all over the list, enough to fit on: a fit has them all in memory at once."""
    wanted = math.ceil(FITTED_ON / batch_size(batches[0]))
    every = max(len(batches) // wanted, 1)
    return batches[::every][:wanted]


def halvings(units: Units, number: int, least: int) -> int:
    """How often a number of heads can be halved with more than `least` left."""
    half = _half(units, number)
    return 0 if half <= least else 1 + halvings(units, half, least)


def _half(units: Units, number: int) -> int:
    """Half of the heads, rounded up to a count that fits."""
    return units.after(number, number - number // 2)


def _removal_costs(
    model: nn.Module, scope: Scope, batches: Iterable[Batch], ridge: float
) -> dict[int, float]:
    """What the loss of each head costs around the model as it is; of a group, an equal part."""
    heads = find_heads(model)
    units = scope.units(heads)
    sizes = {block.name: size for block, size in zip(units.blocks, units.sizes, strict=True)}
    outputs = [
        output
        for output in outputs_of(model, heads, HeadMask.all(heads))
        if output.block.name in sizes
    ]
    costs = []
    for curvature in curvatures(model, outputs, batches):
        block = curvature.output.block
        costs.append(curvature.removal_costs(block.head_size * sizes[block.name], ridge))
    scores = units.divided(torch.cat(costs))
    indices = [heads.indices[place] for place in scope.positions(heads)]
    return dict(zip(indices, scores.tolist(), strict=True))
