"""Heads as other programs can hold them: at least one per block, and groups of one size.

A block that lost heads may have none, or key-value heads that serve different numbers of queries.
Only headcount runs such a block. Here it gets an equal form, which plain code runs: a block without
heads gets one head of zeros, and a key-value head is repeated until all serve equally many queries.
Both are exact.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from headcount.errors import HeadcountError
from headcount.heads.anatomy import Anatomy, Part, Segment
from headcount.heads.blocks import AttentionBlock, HeadMap
from headcount.surgery.resize import group_sizes

Unit = int | None  # the original number of a head; None for a head of zeros


class NotHeldError(HeadcountError):
    """A form cannot hold a model; the message is the reason, without an end."""


@dataclass(frozen=True)
class RegularBlock:
    """One block in its regular form.

    Attributes:
        block: the block as it is in the model.
        queries: the query heads, in their order.
        key_values: the key-value heads; each serves the next `group` queries.
    """

    block: AttentionBlock
    queries: tuple[Unit, ...]
    key_values: tuple[Unit, ...]

    @property
    def group(self) -> int:
        """Query heads that share one key-value head."""
        return len(self.queries) // len(self.key_values)

    @property
    def counts(self) -> tuple[int, int]:
        """The numbers of query heads and of key-value heads."""
        return len(self.queries), len(self.key_values)

    @property
    def is_as_it_is(self) -> bool:
        """Whether the tensors have this form already."""
        units = self.block.anatomy.key_value_heads(self.block.heads)
        return self.queries == self.block.heads and self.key_values == units

    @property
    def is_emptied(self) -> bool:
        """Whether the block has no heads, and has one of zeros in this form."""
        return self.queries == (None,)


def regular_blocks(heads: HeadMap, common_group: bool = False) -> tuple[RegularBlock, ...]:
    """The regular form of every block.

    Args:
        heads: the heads of the model.
        common_group: let key-value heads serve equally many queries in all blocks, not only within
            each.

    Raises:
        NotHeldError: the code of a block needs headcount, whatever its heads are.
    """
    for block in heads.blocks:
        if block.num_heads < block.born:
            _refuse_special(block)
    sizes = [group_sizes(block.anatomy, block.heads) for block in heads.blocks]
    common = math.gcd(*(size for of_block in sizes for size in of_block))
    return tuple(
        _regular(block, common if common_group else math.gcd(*of_block))
        for block, of_block in zip(heads.blocks, sizes, strict=True)
    )


def _refuse_special(block: AttentionBlock) -> None:
    anatomy = block.anatomy
    if anatomy.padded:
        raise NotHeldError(f"the code of {block.name} insists on its original number of heads")
    if anatomy.wide_norms:
        raise NotHeldError(f"{block.name} normalises over all its heads, also those removed")


def _regular(block: AttentionBlock, group: int) -> RegularBlock:
    if not block.heads:
        return RegularBlock(block, (None,), (None,))
    key_values = tuple(head // block.anatomy.group_size for head in block.heads[::group])
    return RegularBlock(block, block.heads, key_values)


def repeated_key_value_heads(blocks: Iterable[RegularBlock]) -> int:
    """How many key-value heads of the regular form are copies of others."""
    return sum(len(block.key_values) - len(set(block.key_values)) for block in blocks)


def regular_state(model: nn.Module, blocks: Iterable[RegularBlock]) -> dict[str, Tensor]:
    """The weights of a model with its blocks in regular form, under their names.

    Args:
        model: the model; it is not changed.
        blocks: the form of each block.
    """
    state = dict(model.state_dict())
    for regular in blocks:
        if regular.is_as_it_is:
            continue
        block = regular.block
        for part in block.anatomy.parts:
            if part.whole:
                continue
            rows = _rows(block, part, regular)
            for name, dim in part.tensors:
                key = ".".join(filter(None, (block.path, part.path, name)))
                if key in state:  # a buffer may not be saved
                    state[key] = take_or_zero(state[key], dim, rows)
    return state


def take_or_zero(tensor: Tensor, dim: int, rows: Sequence[int | None]) -> Tensor:
    """These rows of a tensor along a dimension, with zeros in place of None."""
    shape = list(tensor.shape)
    shape[dim] = len(rows)
    made = tensor.new_zeros(shape)
    there = [place for place, row in enumerate(rows) if row is not None]
    if there:
        taken = torch.tensor([row for row in rows if row is not None], device=tensor.device)
        places = torch.tensor(there, device=tensor.device)
        made.index_copy_(dim, places, tensor.index_select(dim, taken))
    return made


def _rows(block: AttentionBlock, part: Part, regular: RegularBlock) -> list[int | None]:
    """For every row of the regular form, the row of the tensor that it is."""
    wanted = {"query": regular.queries, "key_value": regular.key_values}
    rows: list[int | None] = []
    start = 0
    for segment in part.segments:
        present = _present(block.anatomy, segment, block.heads)
        begins = {unit: start + place * segment.size for place, unit in enumerate(present)}
        start += len(present) * segment.size
        for unit in wanted[segment.unit]:
            if unit is None:
                rows += [None] * segment.size
            elif segment.only is None or unit in segment.only:
                rows += range(begins[unit], begins[unit] + segment.size)
    return rows


def _present(anatomy: Anatomy, segment: Segment, heads: Sequence[int]) -> list[int]:
    units = heads if segment.unit == "query" else anatomy.key_value_heads(heads)
    return [unit for unit in units if segment.only is None or unit in segment.only]
