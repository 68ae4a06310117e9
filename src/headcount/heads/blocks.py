"""AttentionBlock and HeadMap: every head of a model has one flat index and one readable name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from headcount.errors import HeadcountError
from headcount.heads.anatomy import Anatomy, Part

Kind = Literal["encoder", "decoder", "cross"]


@dataclass(frozen=True)
class AttentionBlock:
    """One attention module with its heads.

    Attributes:
        name: for example `encoder.3`, or `text.encoder.3` in a model with several towers.
        kind: `encoder`, `decoder` or `cross`.
        layer: the layer's number in its stack.
        heads: original numbers of the heads that are there now.
        born: original number of heads, before any removal.
        offset: flat index of the block's head 0.
        path: the block's home module in the model.
        anatomy: which rows of which tensors belong to which head.
    """

    name: str
    kind: Kind
    layer: int
    heads: tuple[int, ...]
    born: int
    offset: int
    path: str
    anatomy: Anatomy = field(repr=False)

    @property
    def num_heads(self) -> int:
        """Query heads that are there now."""
        return len(self.heads)

    @property
    def head_size(self) -> int:
        """Values per head in the input of the output projection."""
        return self.anatomy.head_size

    @property
    def key_value_groups(self) -> tuple[tuple[int, ...], ...]:
        """The heads that are there now, grouped by the key-value head that they share."""
        size = self.anatomy.group_size
        groups: dict[int, list[int]] = {}
        for head in self.heads:
            groups.setdefault(head // size, []).append(head)
        return tuple(tuple(group) for group in groups.values())

    @property
    def num_key_value_heads(self) -> int:
        """Key-value heads that are there now."""
        return len(self.key_value_groups)

    def present(self, part: Part) -> tuple[int, ...]:
        """The heads whose rows a part has now; some parts stay whole when heads are removed."""
        return tuple(range(self.born)) if part.whole else self.heads

    @property
    def indices(self) -> tuple[int, ...]:
        """Flat indices of the heads that are there now."""
        return tuple(self.offset + head for head in self.heads)


@dataclass(frozen=True)
class LeftAlone:
    """An attention module that is not understood, and therefore never touched.

    Attributes:
        path: the module in the model.
        reason: what is not understood about it.
    """

    path: str
    reason: str


@dataclass(frozen=True)
class HeadMap:
    """All heads of a model, block by block in the order of the forward pass.

    The length is the number of heads that are there now. Names and flat indices are the original
    ones: `encoder.3.7` stays `encoder.3.7` when its neighbours are removed.

    Attributes:
        model_type: the model's type, as in its `config.json`.
        blocks: the attention blocks.
        left_alone: attention modules that headcount does not understand and does not touch.
    """

    model_type: str
    blocks: tuple[AttentionBlock, ...]
    left_alone: tuple[LeftAlone, ...] = ()

    def __len__(self) -> int:
        return sum(block.num_heads for block in self.blocks)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    @property
    def born(self) -> int:
        """Original number of heads, before any removal; flat indices are below it."""
        return sum(block.born for block in self.blocks)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the heads that are there now, in flat order."""
        return tuple(f"{block.name}.{head}" for block in self.blocks for head in block.heads)

    @property
    def indices(self) -> tuple[int, ...]:
        """Flat indices of the heads that are there now."""
        return tuple(index for block in self.blocks for index in block.indices)

    @property
    def layout(self) -> tuple[tuple[str, int], ...]:
        """Name and original number of heads of each block; a mask must have the same."""
        return tuple((block.name, block.born) for block in self.blocks)

    def block(self, name: str) -> AttentionBlock:
        """The block of that name."""
        for block in self.blocks:
            if block.name == name:
                return block
        known = ", ".join(block.name for block in self.blocks)
        raise HeadcountError(f"there is no block {name!r} in this model; its blocks are {known}")

    def name(self, index: int) -> str:
        """Readable name of the head with that flat index."""
        for block in self.blocks:
            if block.offset <= index < block.offset + block.born:
                return f"{block.name}.{index - block.offset}"
        raise HeadcountError(
            f"there is no head {index}; this model's heads run from 0 to {self.born - 1}"
        )

    def index(self, name: str) -> int:
        """Flat index of the head of that name."""
        block_name, _, head = name.rpartition(".")
        for block in self.blocks:
            if block.name == block_name and head.isdecimal() and int(head) < block.born:
                return block.offset + int(head)
        first, last = self.blocks[0], self.blocks[-1]
        raise HeadcountError(
            f"there is no head {name!r} in this model; its heads run from {first.name}.0 "
            f"to {last.name}.{last.born - 1}"
        )
