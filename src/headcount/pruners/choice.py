"""Choose exactly K heads from a ranking: every pruner's mask is decided here."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from headcount.errors import HeadcountError
from headcount.heads.blocks import AttentionBlock, HeadMap
from headcount.heads.mask import HeadMask, count_to_keep
from headcount.pruners.settings import Unit
from headcount.pruners.units import Units

# K: a count, or a fraction below 1. Some pruners learn for several at once.
Keep = int | float | Collection[int | float]


@dataclass(frozen=True)
class Scope:
    """Which heads a pruner decides about; all others are kept.

    Attributes:
        kinds: `encoder`, `decoder`, `cross`; None for all.
        layers: numbers of the layers; None for all.
        min_per_block: how many heads every block in the scope keeps at least.
        even: every block in the scope keeps the same share of its original heads.
        unit: what goes or stays together: single heads, or those that share a key-value head.
    """

    kinds: tuple[str, ...] | None = None
    layers: tuple[int, ...] | None = None
    min_per_block: int = 0
    even: bool = False
    unit: Unit = "head"

    def blocks(self, heads: HeadMap) -> tuple[AttentionBlock, ...]:
        """The blocks inside the scope."""
        found = tuple(
            block
            for block in heads.blocks
            if (self.kinds is None or block.kind in self.kinds)
            and (self.layers is None or block.layer in self.layers)
        )
        if not any(block.num_heads for block in found):
            raise HeadcountError(
                f"there are no heads of kinds {self.kinds} in layers {self.layers}; "
                f"the blocks are {', '.join(block.name for block in heads.blocks)}"
            )
        return found

    def positions(self, heads: HeadMap) -> list[int]:
        """Indices of the scope's heads among the heads that are there now."""
        inside = {block.name for block in self.blocks(heads)}
        places: list[int] = []
        start = 0
        for block in heads.blocks:
            if block.name in inside:
                places += range(start, start + block.num_heads)
            start += block.num_heads
        return places

    def units(self, heads: HeadMap) -> Units:
        """What is chosen as one, among which others, and which K fit."""
        return Units(self.blocks(heads), self.even, self.unit, self.min_per_block)

    def count(self, heads: HeadMap, keep: int | float) -> int:
        """K as a number of heads of the scope; of a fraction the nearest that fits."""
        units = self.units(heads)
        count = count_to_keep(keep, units.heads)
        if units.step > 1 and 0 < keep < 1:
            count = units.nearest(keep * units.heads)
        units.refuse_misfit(count)
        return count

    def least(self, heads: HeadMap) -> int:
        """The smallest possible K: what all blocks keep at least, or one unit."""
        return self.units(heads).least

    def counts(self, heads: HeadMap, keep: Keep) -> tuple[int, ...]:
        """Every K as a number of heads of the scope, without repeats, the largest first."""
        if not isinstance(keep, Collection):
            return (self.count(heads, keep),)
        counts = sorted({self.count(heads, one) for one in keep}, reverse=True)
        if not counts or counts[-1] < 1:
            raise HeadcountError(
                f"cannot train for {list(keep)} heads at once; give counts of 1 or more, "
                "or fractions between 0 and 1"
            )
        return tuple(counts)


def choose(heads: HeadMap, scope: Scope, importance: Tensor, keep: int) -> HeadMask:
    """The mask of exactly `keep` heads of the scope with the highest importance.

    Ties go to the earlier head. Heads outside the scope are also kept. `importance` has one number
    per head that is there now; those outside the scope are not read. A group counts for the sum of
    its heads. In an even layout each block keeps its best.
    """
    scores = [float(score) for score in importance.detach().to(torch.float64).flatten()]
    if len(scores) != len(heads):
        raise HeadcountError(
            f"there are {len(scores)} importances, expected one for each of {len(heads)} heads"
        )
    if any(map(math.isnan, scores)):
        raise HeadcountError(
            "an importance is not a number: the model's values or gradients are too large for its "
            "type; load it in bfloat16 or float32"
        )
    inside, units = scope.positions(heads), scope.units(heads)
    own = torch.tensor([scores[place] for place in inside], dtype=torch.float64)
    worth = units.total(own).tolist()
    chosen: list[int] = []
    for pool, quota in zip(units.pools, units.quotas(keep), strict=True):
        ranked = sorted(range(pool.start, pool.stop), key=lambda unit: (-worth[unit], unit))
        best = _guaranteed(units, ranked)
        chosen += best
        chosen += [unit for unit in ranked if unit not in best][: max(quota - len(best), 0)]
    kept = {inside[place] for place in units.members(chosen)}
    outside = set(range(len(heads))) - set(inside)
    return HeadMask.from_indices(heads, (heads.indices[place] for place in kept | outside))


def _guaranteed(units: Units, ranked: Sequence[int]) -> dict[int, None]:
    """The best units of each block, with `min_per_block` heads; a set that keeps their order."""
    if not units.min_per_block:
        return {}
    taken = [0] * len(units.blocks)
    best: dict[int, None] = {}
    for unit in ranked:
        owner = units.owners[unit]
        if taken[owner] < units.min_per_block:
            taken[owner] += units.sizes[owner]
            best[unit] = None
    return best


def normalised_by_block(values: Tensor, blocks: Sequence[AttentionBlock]) -> Tensor:
    """Divide the values of each block's heads by their ℓ2 norm, so that layers can be compared."""
    start, parts = 0, []
    for block in blocks:
        part = values[start : start + block.num_heads]
        parts.append(unit_norm(part))
        start += block.num_heads
    return torch.cat(parts)


def unit_norm(values: Tensor) -> Tensor:
    """The values, divided by their ℓ2 norm."""
    size: Tensor = values.norm().clamp(min=1e-300)
    return values / size


def standardised(values: Tensor, scale: float) -> Tensor:
    """Scale values to mean 0 and the standard deviation `scale`.

    Noise then has the intended weight, however far an optimizer has moved the values, in short and
    in long trainings. No gradient flows through the deviation.
    """
    centred = values - values.mean()
    deviation = centred.detach().square().sum().div(max(len(values) - 1, 1)).sqrt()
    return scale * centred / deviation.clamp(min=1e-12)
