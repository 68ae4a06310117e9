"""Where one attention block keeps its heads: which rows of which tensors belong to which head.

A family of models differs from another in names and in the order of rows, not in kind: every
tensor with values per head is a sequence of segments, and a segment holds the same number of rows
for each head, head after head. That is all that gating, cutting and reloading need to know.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, cast

from torch import nn

Unit = Literal["query", "key_value"]
Returns = Literal["output", "output, weights", "output[, weights]", "output, weights, None"]
Role = Literal["heads", "width", "query_width", "key_value", "key_value_width", "groups"]


@dataclass(frozen=True)
class Segment:
    """A run of rows: `size` rows for every query head, or for every key-value head.

    Attributes:
        unit: whether the rows belong to query heads or to key-value heads.
        size: rows per head.
        only: the numbers of the heads that this run is about; None for all of them.
    """

    unit: Unit
    size: int
    only: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Part:
    """The tensors of one submodule that have values per head.

    Attributes:
        path: the submodule, seen from the block's home module; empty for the home module itself.
        tensors: names of its parameters or buffers with the dimension along which heads lie.
        segments: what the rows along that dimension are.
        whole: the tensors stay whole until the block is emptied, because something reads all of
            their rows (a normalisation across heads, a bias that other blocks share).
    """

    path: str
    tensors: tuple[tuple[str, int], ...]
    segments: tuple[Segment, ...]
    whole: bool = False


@dataclass(frozen=True)
class Count:
    """An integer attribute that the forward pass reads and that depends on the number of heads."""

    path: str
    attribute: str
    role: Role


@dataclass(frozen=True)
class HeadArgument:
    """An argument of the forward pass with a value per head, computed outside the block.

    Attributes:
        name: the argument's name in the signature of the forward pass.
        dim: the dimension that has one entry per head.
        folded: the dimension holds batch × heads rather than heads (ALiBi in BLOOM and Falcon).
    """

    name: str
    dim: int
    folded: bool = False


@dataclass(frozen=True)
class Tail:
    """What a block does after its output projection, for when it has no heads left.

    Attributes:
        returns: the forward pass returns the output alone, the output and the attention weights
            (and nothing in place of a cache), or the output and, if asked for, the weights.
        after: submodules (dropouts, norms) applied to the output, in order.
        residual: the argument that is added to the output before the norms, if any.
    """

    returns: Returns
    after: tuple[str, ...] = ()
    residual: str | None = None


@dataclass(frozen=True)
class Anatomy:
    """How one block is built.

    Paths are seen from the block's home module: the attention module itself, or the module around
    it where the output projection lives next door (BERT).

    Attributes:
        core: the submodule whose forward pass computes the attention; empty for the home module.
        output: the output projection. Its input is where a gate multiplies.
        num_heads: query heads before anything was removed.
        num_key_value_heads: key-value heads before anything was removed.
        head_size: values per head in the input of the output projection.
        key_size: values per head in the queries and keys.
        parts: every tensor with values per head, output projection included.
        counts: attributes to keep in step with the number of heads.
        wide_norms: normalisations across all heads, with the unit they run over. Their input stays
            whole and the kept heads are taken from their output.
        arguments: arguments with a value per head.
        tail: how an emptied block answers; None where its code is not plain enough to tell.
        shares_bias: the block hands a position bias of all heads on to later blocks (T5).
        dispatches: keys and values pass through a registered attention function, after the cache.
        reads_config: the forward pass takes the number of heads from its configuration.
        uneven_groups: queries of one key-value head may be fewer than those of another.
        padded: the forward pass insists on the original width. The rows are cut, and zeros stand
            in for them between the projections.
    """

    core: str
    output: str
    num_heads: int
    num_key_value_heads: int
    head_size: int
    key_size: int
    parts: tuple[Part, ...]
    counts: tuple[Count, ...] = ()
    wide_norms: tuple[tuple[str, Unit], ...] = ()
    arguments: tuple[HeadArgument, ...] = ()
    tail: Tail | None = None
    shares_bias: bool = False
    dispatches: bool = False
    reads_config: bool = False
    uneven_groups: bool = True
    padded: bool = False

    @property
    def group_size(self) -> int:
        """Query heads that share one key-value head."""
        return self.num_heads // self.num_key_value_heads

    def key_value_heads(self, heads: Sequence[int]) -> tuple[int, ...]:
        """The key-value heads that these query heads read."""
        return tuple(sorted({head // self.group_size for head in heads}))

    def rows_to_keep(
        self, part: Part, present: Sequence[int], kept: Sequence[int]
    ) -> tuple[list[int], int]:
        """Indices of the rows of `part` that stay, and the number of rows there are now.

        Args:
            part: one of this block's parts.
            present: query heads whose rows are in the tensors now.
            kept: query heads that stay.
        """
        rows: list[int] = []
        start = 0
        kept_units = {"query": set(kept), "key_value": set(self.key_value_heads(kept))}
        now = {"query": tuple(present), "key_value": self.key_value_heads(present)}
        for segment in part.segments:
            for unit in now[segment.unit]:
                if segment.only is not None and unit not in segment.only:
                    continue
                if unit in kept_units[segment.unit]:
                    rows.extend(range(start, start + segment.size))
                start += segment.size
        return rows, start


_ATTRIBUTE = "_headcount"


@dataclass(frozen=True)
class Remains:
    """The anatomy that a block was born with, and the heads that it still has."""

    anatomy: Anatomy
    heads: tuple[int, ...]


def remains_of(home: nn.Module) -> Remains | None:
    """What is left of a block from which heads were removed; None if none ever were."""
    return cast("Remains | None", vars(home).get(_ATTRIBUTE))


def remember(home: nn.Module, remains: Remains) -> None:
    """Leave the record on the block's home module, where copies of the model take it along."""
    setattr(home, _ATTRIBUTE, remains)
