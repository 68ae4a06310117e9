"""Surgeon: heads that the others can replace are the first to go.

Michel et al. ask how much the loss feels a head as the model is. What counts after a cut is how
much it misses the head when the output weights of the others were fitted again. A head that says
what others say too is missed little then. That is Optimal Brain Surgeon (Hassibi and Stork 1993),
with whole heads for weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from headcount.batch import Batch
from headcount.errors import SettingError
from headcount.heads.find import find_heads
from headcount.heads.mask import HeadMask
from headcount.pruners.choice import Scope
from headcount.pruners.curvature import Curvature, curvatures
from headcount.pruners.rehearsal import Layer, Rehearsal, Spread, measured_course
from headcount.pruners.scored import Scored, ScoredSettings, ScoringData, unit_outputs
from headcount.pruners.settings import PrunerSettings
from headcount.pruners.units import Units
from headcount.surgery.compensate import RIDGE

STEPS = 256  # of the rehearsal of a large model, which takes several heads at a time


@dataclass(frozen=True)
class SurgeonSettings(ScoredSettings):
    """How the ranking is made.

    Attributes:
        measured: compare layers by measurement, in a rehearsal of the cut. False compares them by
            the quadratic model of the loss alone. That takes one pass over the data, and is faster.
        ridge: price of a change of the output weights, in units of the mean square of the values. A
            higher one keeps them closer to what they were.
        compensate: fit the output weights of the heads that stay, as the ranking expects. Turn it
            off only if the weights must stay as they are.
    """

    measured: bool = True
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

    def fit(
        self, model: nn.Module, batches: Iterable[Batch], tell: Callable[[int], None] | None = None
    ) -> HeadMask:
        """Find out what the loss of each head costs.

        Args:
            model: the fine-tuned model; it is not changed.
            batches: what the model takes, labels included; gone through once.
            tell: receives the number of heads, or groups, that are gone in the rehearsal.
        """
        self.bind(find_heads(model))
        down_to = self.count if self.settings.measured else None
        found = removal_costs(model, self.scope, batches, self.settings.ridge, down_to, tell)
        self.scores = torch.tensor(list(found.values()), dtype=torch.float64)
        return self.mask()

    def score(self, model: nn.Module, data: ScoringData) -> None:
        """Rank the heads on a sample of the training data."""
        self.bind(find_heads(model))
        batches = data.batches(self.settings, 1)
        units = self.units
        number = (units.heads - self.count) // units.step
        self.fit(model, batches, data.told("rehearsing the cut", number))

    def signature(self) -> list[str]:
        """Whether layers were compared by measurement."""
        return [*super().signature(), *(["measured"] if self.settings.measured else [])]


def removal_costs(
    model: nn.Module,
    scope: Scope,
    batches: Iterable[Batch],
    ridge: float,
    down_to: int | None = None,
    tell: Callable[[int], None] | None = None,
) -> dict[int, float]:
    """What the loss of each head costs, by its number, of the heads in the scope that are there.

    A quadratic model of the loss gives the order in which each layer loses its heads. With
    `down_to`, heads then go in turn in a rehearsal, which measures which layer loses the next one;
    see `measured_course`. A head costs what the answers have changed by when it goes. Those that
    stay get a rank on top of that, by the quadratic model. In an even layout there is nothing to
    compare.

    Args:
        model: fine-tuned, cut before or not; it is not changed.
        scope: which heads.
        batches: what the model takes, labels included.
        ridge: what a change of the output weights costs, in units of the mean square of the values.
        down_to: measure until this many heads are left; None does not measure.
        tell: receives the number of heads, or groups, that are gone in the rehearsal.
    """
    heads = find_heads(model)
    units = scope.units(heads)
    outputs = unit_outputs(model, heads, units)
    widths = [width for _, width in outputs]
    measured = down_to is not None and down_to < units.heads and not scope.even
    seen = Spread()
    asked = seen.watching(batches) if measured else batches
    found = curvatures(model, [output for output, _ in outputs], asked)
    costs = [c.removal_costs(width, ridge) for c, width in zip(found, widths, strict=True)]
    if measured and down_to is not None:
        layers = [
            Layer(curvature, width, cost, _least(units, curvature))
            for curvature, width, cost in zip(found, widths, costs, strict=True)
        ]
        rehearsal = Rehearsal(model, layers, seen.batches(), ridge)
        step = math.ceil(len(units) / STEPS)
        went = measured_course(rehearsal, down_to // units.step, step, tell or (lambda done: None))
        costs = _measured_costs(layers, went)
    scores = units.divided(torch.cat(costs))
    indices = [heads.indices[place] for place in scope.positions(heads)]
    return dict(zip(indices, scores.tolist(), strict=True))


def _least(units: Units, curvature: Curvature) -> int:
    """How many units a block keeps in any case."""
    place = units.blocks.index(curvature.output.block)
    return math.ceil(units.min_per_block / units.sizes[place])


def _measured_costs(layers: Sequence[Layer], went: Sequence[tuple[int, float]]) -> list[Tensor]:
    """The distance at which each unit went; those that stayed come after, by the quadratic model.

    A unit never costs less than one that went before it.
    """
    found = [torch.zeros_like(layer.costs) for layer in layers]
    orders = [layer.order for layer in layers]
    gone, highest = [0] * len(layers), 0.0
    for place, distance in went:
        # Slightly more, because equal scores would be ranked by the heads' numbers.
        highest = max(highest * (1 + 1e-9), distance, 1e-300)
        found[place][orders[place][gone[place]]] = highest
        gone[place] += 1
    top = max((float(layer.costs.max()) for layer in layers if len(layer.costs)), default=0.0)
    for place, layer in enumerate(layers):
        stayed = orders[place][gone[place] :]
        found[place][stayed] = max(highest, 1e-300) * (2 + layer.costs[stayed] / (top or 1.0))
    return found
