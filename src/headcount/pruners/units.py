"""Even layers and whole groups: what is chosen as one, among which others, and which K fit.

A unit is what goes or stays together: a head, or the query heads that share a key-value head. The
units of a pool compete for its places: all units of the scope, or, in an even layout, those of one
block. Every pruner asks here, so that training and the final choice follow the same rule.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from headcount.errors import HeadcountError
from headcount.heads.blocks import AttentionBlock
from headcount.pruners.settings import Unit


@dataclass(frozen=True)
class Units:
    """The units of a scope, in the order of its heads, and the K that can be kept of them.

    K fits if it is a multiple of `step` from `low` to `high`. For single heads that compete in the
    whole scope the step is 1, so that every K fits.

    Attributes:
        blocks: the blocks of the scope.
        even: every block keeps the same share of its original heads.
        unit: what goes or stays together.
        min_per_block: how many heads every block keeps at least.
    """

    blocks: tuple[AttentionBlock, ...]
    even: bool = False
    unit: Unit = "head"
    min_per_block: int = 0

    def __post_init__(self) -> None:
        sizes = {
            size: block.name
            for block, size in zip(reversed(self.blocks), reversed(self.sizes), strict=True)
            if block.num_heads
        }
        if not self.even and len(sizes) > 1:
            (one, first), (other, second) = sorted(sizes.items())[:2]
            raise HeadcountError(
                f"cannot count in whole groups: their size is {one} in {first} and {other} in "
                f"{second}; decide about layers with groups of one size, or choose single heads"
            )

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Heads per unit, of each block."""
        if self.unit == "head":
            return (1,) * len(self.blocks)
        return tuple(_group_size(block) for block in self.blocks)

    @cached_property
    def per_block(self) -> tuple[int, ...]:
        """Units of each block."""
        sizes = zip(self.blocks, self.sizes, strict=True)
        return tuple(block.num_heads // size for block, size in sizes)

    def __len__(self) -> int:
        return sum(self.per_block)

    @property
    def heads(self) -> int:
        """How many heads there are in all units."""
        return sum(block.num_heads for block in self.blocks)

    @cached_property
    def pools(self) -> tuple[slice, ...]:
        """The units that compete with each other: those of a block, or all."""
        if not self.even:
            return (slice(0, len(self)),)
        stops = [sum(self.per_block[: place + 1]) for place in range(len(self.blocks))]
        return tuple(map(slice, [0, *stops], stops))

    @cached_property
    def shares(self) -> tuple[float, ...]:
        """The share of K that each pool keeps."""
        if not self.even:
            return (1.0,)
        return tuple(block.born / self._born for block in self.blocks)

    @cached_property
    def owners(self) -> tuple[int, ...]:
        """The place of each unit's block among the blocks."""
        return tuple(place for place, count in enumerate(self.per_block) for _ in range(count))

    @cached_property
    def weights(self) -> Tensor:
        """Heads of each unit."""
        return torch.tensor([self.sizes[owner] for owner in self.owners])

    @cached_property
    def _unit_of(self) -> Tensor:
        return torch.arange(len(self)).repeat_interleave(self.weights)

    @property
    def are_heads(self) -> bool:
        """Whether every unit is a single head."""
        return len(self) == self.heads

    def spread(self, values: Tensor) -> Tensor:
        """The value of each head, from one per unit."""
        return values if self.are_heads else values[self._unit_of.to(values.device)]

    def divided(self, values: Tensor) -> Tensor:
        """An equal part for each head of a unit's value: their `total` gives it back."""
        return self.spread(values / self.weights.to(values.device))

    def total(self, values: Tensor) -> Tensor:
        """The sum of each unit, from one value per head."""
        if self.are_heads:
            return values
        return values.new_zeros(len(self)).index_add(0, self._unit_of.to(values.device), values)

    def members(self, units: Sequence[int]) -> Iterator[int]:
        """Places in the scope of the heads of these units."""
        ends = self.weights.cumsum(0).tolist()
        for unit in units:
            yield from range(ends[unit] - self.sizes[self.owners[unit]], ends[unit])

    @cached_property
    def step(self) -> int:
        """K must be a multiple of this."""
        if not self.even:
            return max(s for b, s in zip(self.blocks, self.sizes, strict=True) if b.num_heads)
        needs = [
            self._born * size // math.gcd(self._born * size, block.born)
            for block, size in zip(self.blocks, self.sizes, strict=True)
        ]
        return math.lcm(*needs)

    @property
    def _born(self) -> int:
        return sum(block.born for block in self.blocks)

    @cached_property
    def low(self) -> int:
        """The fewest heads with `min_per_block` of them in every block; 0 without a minimum."""
        least = [min(self.min_per_block, block.num_heads) for block in self.blocks]
        if not self.even:
            sizes = zip(least, self.sizes, strict=True)
            return sum(-(-heads // size) * size for heads, size in sizes)
        shares = zip(least, self.blocks, strict=True)
        return self._up(max(-(-heads * self._born // block.born) for heads, block in shares))

    @cached_property
    def high(self) -> int:
        """The most heads; in an even layout fewer than all if a block lost some before."""
        if not self.even:
            return self.heads
        most = min(block.num_heads * self._born // block.born for block in self.blocks)
        return most // self.step * self.step

    @property
    def least(self) -> int:
        """The smallest K above 0 that fits."""
        return max(self.low, self.step)

    @property
    def fitting(self) -> range:
        """Every K above 0 that fits, the smallest first."""
        return range(self.least, self.high + 1, self.step)

    def _up(self, count: float) -> int:
        return math.ceil(count / self.step) * self.step

    def nearest(self, count: float) -> int:
        """The nearest multiple of `step`, the larger of two; not 0, and not above `high`."""
        nearest = math.floor(count / self.step + 0.5) * self.step
        return max(min(nearest, self.high), self.step)

    def rounded(self, count: int) -> int:
        """A count that a method found, as the nearest K that fits."""
        free = self.step == 1 and not self.even
        return count if free else max(self.nearest(count), self.low)

    def on_the_way(self, count: int) -> int:
        """What a course has left where its curve has `count`: the next K up that fits, or all."""
        return self._up(count) if self._up(count) <= self.high else self.heads

    def after(self, left: int, removed: int) -> int:
        """What is left of this many heads once about so many more are gone; one unit at least."""
        fewer = self.on_the_way(max(left - removed, 0))
        return fewer if fewer < left else min((left - 1) // self.step * self.step, self.high)

    def refuse_misfit(self, count: int) -> None:
        """Refuse a K that does not fit, and name those beside it that do."""
        if count % self.step == 0 and self.low <= count <= self.high:
            return
        if count < self.low and (count % self.step == 0 or self.high < self.low):
            raise HeadcountError(
                f"cannot keep {count} heads with at least {self.min_per_block} in each of "
                f"{len(self.blocks)} blocks, which needs {self.low}; keep more or lower the minimum"
            )
        evenly = " evenly" * self.even + " in whole groups" * (self.unit == "group")
        beside = sorted({self.nearest(below) for below in self._beside(count)})
        fitting = [str(k) for k in beside if self.least <= k <= self.high]
        advice = f"keep {' or '.join(fitting)}" if fitting else "choose other layers"
        raise HeadcountError(f"cannot keep {count} heads{evenly}: {self._why(count)}; {advice}")

    def _beside(self, count: int) -> tuple[int, int]:
        below = count // self.step * self.step
        return max(below, self.least), max(below + self.step, self.least)

    def _why(self, count: int) -> str:
        if self.high < self.least or (count > self.high and count % self.step == 0):
            block = min(self.blocks, key=lambda block: block.num_heads / block.born)
            return (
                f"{block.name} has {block.num_heads} of its {block.born} heads left, which allows "
                f"no more than {self.high}"
            )
        groups = f"groups of {_from_to(self.sizes)}"
        if not self.even:
            return f"{groups} heads need a multiple of {self.step}"
        kinds = {block.kind for block in self.blocks}
        blocks = f"{len(self.blocks)} {'layers' if len(kinds) == 1 else 'blocks'}"
        within = f" in {groups}" if self.unit == "group" else ""
        born = _from_to([block.born for block in self.blocks])
        return f"{blocks} with {born} heads{within} each need a multiple of {self.step}"

    def quotas(self, count: int) -> tuple[int, ...]:
        """How many units of each pool stay, of `count` heads: a K that fits, or all heads."""
        if count == self.heads:
            return tuple(pool.stop - pool.start for pool in self.pools)
        if self.step > 1 or self.even:
            self.refuse_misfit(count)
        if not self.even:
            return (count // self.step,)
        blocks = zip(self.blocks, self.sizes, strict=True)
        return tuple(count * block.born // (self._born * size) for block, size in blocks)


def _group_size(block: AttentionBlock) -> int:
    """How many heads share a key-value head; 1 in a block without heads."""
    sizes = {len(group) for group in block.key_value_groups}
    if len(sizes) > 1:
        raise HeadcountError(
            f"cannot count in whole groups: those of {block.name} have {_from_to(sorted(sizes))} "
            "heads since an earlier pruning; choose single heads, or prune the original model"
        )
    return sizes.pop() if sizes else 1


def _from_to(numbers: Sequence[int]) -> str:
    least, most = min(numbers), max(numbers)
    return str(least) if least == most else f"{least} to {most}"
