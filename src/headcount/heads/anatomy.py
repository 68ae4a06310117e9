"""Where one attention block keeps its heads: which rows of which tensors belong to which head.

Model families differ in names and in the order of rows, not in kind. Every tensor with values per
head is a sequence of segments. A segment holds the same number of rows for each head, head after
head. That is all that gating, cutting and reloading need to know.

A block that was cut keeps a `PrunedRecord`: its original anatomy and the heads that are left.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, cast

from torch import nn

Unit = Literal["query", "key_value"]
Returns = Literal["output", "output, weights", "output[, weights]", "output, weights, None"]
Role = Literal["heads", "width", "query_width", "key_value", "key_value_width", "groups"]


@dataclass(frozen=True)
class Segment:
    """Consecutive rows of a tensor: `size` rows for every query head or key-value head.

    Attributes:
        unit: whether the rows belong to query heads or to key-value heads.
        size: rows per head.
        only: the numbers of the heads whose rows these are; None for all heads.
    """

    unit: Unit
    size: int
    only: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Part:
    """The tensors of one submodule that have values per head.

    Attributes:
        path: the submodule, seen from the block's home module; empty for the home module itself.
        tensors: each parameter or buffer by name, with the dimension that has the heads.
        segments: which rows along that dimension belong to which heads.
        whole: keep all rows until the block is emptied, because something reads all of them (a
            normalisation across heads, a bias that other blocks share).
    """

    path: str
    tensors: tuple[tuple[str, int], ...]
    segments: tuple[Segment, ...]
    whole: bool = False


@dataclass(frozen=True)
class Count:
    """An integer attribute of a module that must follow the number of heads.

    Attributes:
        path: the submodule that has it, seen from the block's home module.
        attribute: its name.
        role: what it counts, for example heads or the width of all heads together.
    """

    path: str
    attribute: str
    role: Role


@dataclass(frozen=True)
class HeadArgument:
    """An argument of the forward pass with a value per head, which other code computes.

    Attributes:
        name: the argument's name in the signature of the forward pass.
        dim: the dimension that has one entry per head.
        folded: that dimension is batch × heads instead of heads (ALiBi in BLOOM and Falcon).
    """

    name: str
    dim: int
    folded: bool = False


@dataclass(frozen=True)
class AfterProjection:
    """What a block does after its output projection: all that it still does without heads.

    Attributes:
        returns: the form of its answer. `output[, weights]` gives attention weights only when
            asked to; a third element None is in the place of a cache.
        modules: submodules (dropouts, norms) that it applies to the output, in order.
        residual: the argument that it adds to the output before the norms; None for no argument.
    """

    returns: Returns
    modules: tuple[str, ...] = ()
    residual: str | None = None


@dataclass(frozen=True)
class Anatomy:
    """How one block is built.

    Paths start at the block's home module. That is the attention module itself, or the module
    around it if the output projection is a neighbour of the attention module (BERT).

    Attributes:
        core: the submodule whose forward pass computes the attention; empty for the home module.
        output: the output projection. Gates multiply its input.
        num_heads: original number of query heads, before any removal.
        num_key_value_heads: original number of key-value heads.
        head_size: values per head in the input of the output projection.
        key_size: values per head in the queries and keys.
        parts: every tensor with values per head, output projection included.
        counts: attributes that must follow the number of heads.
        wide_norms: normalisations across all heads, each with the unit that it runs over. Their
            input keeps all heads; the kept heads are selected from their output.
        arguments: arguments of the forward pass with a value per head.
        after_projection: how an emptied block answers; None if its code is not plain.
        shares_bias: the block gives a position bias of all heads to later blocks (T5).
        dispatches: keys and values pass through a registered attention function, after the cache.
        reads_config: the forward pass reads the number of heads from its configuration.
        uneven_groups: key-value heads may have different numbers of queries.
        padded: the forward pass needs the original width. The rows are cut, and zeros fill their
            places between the projections.
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
    after_projection: AfterProjection | None = None
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
        """Indices of the rows of `part` to keep, and how many rows it has now.

        Args:
            part: one of this block's parts.
            present: query heads that have rows in the tensors now.
            kept: query heads to keep.
        """
        rows: list[int] = []
        start = 0
        kept_units = {"query": set(kept), "key_value": set(self.key_value_heads(kept))}
        for segment, rows_of in self.rows_by_segment(part, present):
            for unit, own in rows_of.items():
                if unit in kept_units[segment.unit]:
                    rows.extend(own)
                start = own.stop
        return rows, start

    def rows_by_segment(
        self, part: Part, present: Sequence[int]
    ) -> Iterator[tuple[Segment, dict[int, range]]]:
        """Each segment of `part`, with the rows that each of its heads has now.

        Args:
            part: one of this block's parts.
            present: query heads that have rows in the tensors now.
        """
        start = 0
        now = {"query": tuple(present), "key_value": self.key_value_heads(present)}
        for segment in part.segments:
            rows_of: dict[int, range] = {}
            for unit in now[segment.unit]:
                if segment.only is None or unit in segment.only:
                    rows_of[unit] = range(start, start + segment.size)
                    start += segment.size
            yield segment, rows_of


@dataclass(frozen=True)
class PrunedRecord:
    """What a block that lost heads knows about itself.

    Attributes:
        anatomy: the block as it was before any removal.
        heads: original numbers of the heads that are left.
    """

    anatomy: Anatomy
    heads: tuple[int, ...]


_ATTRIBUTE = "_headcount"


def leave_record(home: nn.Module, record: PrunedRecord) -> None:
    """Store the record on the block's home module, so that copies of the model have it too."""
    setattr(home, _ATTRIBUTE, record)


def pruned_record(home: nn.Module) -> PrunedRecord | None:
    """The record that a pruned block has; None if no heads were removed from it."""
    return cast("PrunedRecord | None", vars(home).get(_ATTRIBUTE))
