"""Where an attention module keeps its queries, keys and values, and how many heads it has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn
from transformers.pytorch_utils import Conv1D

from headcount.heads import families
from headcount.heads.anatomy import Part, Segment
from headcount.heads.families import Family, family_of


class NotUnderstoodError(Exception):
    """An attention module that cannot be cut safely; the message says why."""


@dataclass(frozen=True)
class Shape:
    """How many heads a block has, and how many values each has.

    Attributes:
        heads: query heads.
        key_value_heads: key-value heads; fewer than the query heads if several share one.
        key_size: values per head in the queries and keys.
        value_size: values per head in the values.
    """

    heads: int
    key_value_heads: int
    key_size: int
    value_size: int


def has_projections(module: nn.Module) -> bool:
    """Whether a module has queries, keys and values under known names."""
    has_query = find_child(module, families.QUERY) is not None
    has_key = find_child(module, families.KEY) is not None
    if find_child(module, (family_of(module).interleaved,)) is not None:
        return True
    beside = (*families.STACKED_KEY_VALUE, *families.LATENT)
    if has_query and (has_key or find_child(module, beside) is not None):
        return True
    return find_child(module, (*families.STACKED, *families.INTERLEAVED)) is not None


def projections(
    attention: nn.Module, prefix: str, family: Family
) -> tuple[Shape, tuple[Part, ...]]:
    """The shape of a module's heads, and the parts that hold its q, k and v."""
    query = find_child(attention, families.QUERY)
    key, value = find_child(attention, families.KEY), find_child(attention, families.VALUE)
    if query is not None and key is not None and value is not None:
        return _separate(attention, prefix, (query, key, value), family)
    if query is not None:
        stacked = find_child(attention, families.STACKED_KEY_VALUE)
        if stacked is not None and key is None and value is None:
            return _query_beside_stacked(attention, prefix, query, stacked)
        latent = find_child(attention, families.LATENT)
        if latent is not None:
            return _latent(attention, prefix, query, latent)
        raise NotUnderstoodError("it has queries but no keys and values of its own")
    fused = find_child(attention, (family.interleaved, *families.STACKED, *families.INTERLEAVED))
    if fused is None:
        raise NotUnderstoodError("it has neither separate q, k, v nor one fused projection")
    return _fused(attention, prefix, fused, family)


def _separate(
    attention: nn.Module, prefix: str, names: tuple[str, str, str], family: Family
) -> tuple[Shape, tuple[Part, ...]]:
    modules = [attention.get_submodule(name) for name in names]
    query_rows, key_rows, value_rows = (rows_of(module) for module in modules)
    heads, size = _heads(attention, query_rows, family.query_copies)
    key_value_heads, rest = divmod(key_rows, size)
    if rest or not key_value_heads or heads % key_value_heads or value_rows % key_value_heads:
        raise NotUnderstoodError(
            f"its keys have {key_rows} and its values {value_rows} values, which do not divide "
            f"among {heads} heads of {size}"
        )
    shape = Shape(heads, key_value_heads, size, value_rows // key_value_heads)
    segments = (
        Segment("query", size * family.query_copies),
        Segment("key_value", size),
        Segment("key_value", shape.value_size),
    )
    parts = tuple(
        Part(prefix + name, tensors_of(module), (segment,))
        for name, module, segment in zip(names, modules, segments, strict=True)
    )
    return shape, parts


def _query_beside_stacked(
    attention: nn.Module, prefix: str, query: str, stacked: str
) -> tuple[Shape, tuple[Part, ...]]:
    heads, size = _heads(attention, rows_of(attention.get_submodule(query)), 1)
    module = attention.get_submodule(stacked)
    if rows_of(module) != 2 * heads * size:
        raise NotUnderstoodError(f"{stacked} does not hold the keys and values of {heads} heads")
    shape = Shape(heads, heads, size, size)
    return shape, (
        Part(prefix + query, tensors_of(attention.get_submodule(query)), (Segment("query", size),)),
        Part(prefix + stacked, tensors_of(module), (Segment("key_value", size),) * 2),
    )


def _latent(
    attention: nn.Module, prefix: str, query: str, latent: str
) -> tuple[Shape, tuple[Part, ...]]:
    """DeepSeek's latent attention: queries per head, keys and values per head from a latent."""
    modules = attention.get_submodule(query), attention.get_submodule(latent)
    heads = _count(attention, families.HEAD_COUNTS)
    sizes = [getattr(attention, name, None) for name in ("qk_head_dim", "qk_nope_head_dim")]
    if heads is None or not all(isinstance(size, int) for size in sizes):
        raise NotUnderstoodError("nothing says how many heads of which size its latent unfolds to")
    key_size, nope_size = (int(size) for size in sizes if size is not None)
    unfolded, rest = divmod(rows_of(modules[1]), heads)
    if rest or rows_of(modules[0]) != heads * key_size or unfolded <= nope_size:
        raise NotUnderstoodError(f"its projections do not divide among {heads} heads of {key_size}")
    shape = Shape(heads, heads, key_size, unfolded - nope_size)
    return shape, tuple(
        Part(prefix + name, tensors_of(module), (Segment("query", size),))
        for name, module, size in zip((query, latent), modules, (key_size, unfolded), strict=True)
    )


def _fused(
    attention: nn.Module, prefix: str, name: str, family: Family
) -> tuple[Shape, tuple[Part, ...]]:
    module = attention.get_submodule(name)
    rows = rows_of(module)
    heads = _count(attention, families.HEAD_COUNTS)
    if heads is None:
        raise NotUnderstoodError("nothing says how many heads it has")
    key_value_heads = _count(attention, families.KEY_VALUE_COUNTS) or heads
    size, rest = divmod(rows, heads + 2 * key_value_heads)
    if rest:
        raise NotUnderstoodError(f"{name} has {rows} rows, which do not divide among {heads} heads")
    if family.slices > 1:
        segments = _sliced(heads, family.slices, size)
    elif name in (*families.INTERLEAVED, family.interleaved):
        segments = _interleaved(heads, key_value_heads, size)
    else:
        segments = (Segment("query", size), Segment("key_value", size), Segment("key_value", size))
    shape = Shape(heads, key_value_heads, size, size)
    return shape, (Part(prefix + name, tensors_of(module), segments),)


def _sliced(heads: int, slices: int, size: int) -> tuple[Segment, ...]:
    """CodeGen: slice after slice of the heads; each has its queries, values and keys."""
    per_slice, rest = divmod(heads, slices)
    if rest:
        raise NotUnderstoodError(f"its {heads} heads do not divide into {slices} slices")
    return tuple(
        Segment("query", size, only=tuple(range(s * per_slice, (s + 1) * per_slice)))
        for s in range(slices)
        for _ in range(3)
    )


def _interleaved(heads: int, key_value_heads: int, size: int) -> tuple[Segment, ...]:
    """Group after group: its queries, then the key and the value that they share."""
    if heads == key_value_heads:
        return (Segment("query", 3 * size),)
    group = heads // key_value_heads
    segments: list[Segment] = []
    for shared in range(key_value_heads):
        queries = tuple(range(shared * group, (shared + 1) * group))
        segments.append(Segment("query", size, only=queries))
        segments += [Segment("key_value", size, only=(shared,))] * 2
    return tuple(segments)


def _heads(attention: nn.Module, query_rows: int, copies: int) -> tuple[int, int]:
    """Number and size of the query heads, from the module's own attributes."""
    heads = _own_count(attention, families.HEAD_COUNTS)
    size = _own_count(attention, families.HEAD_SIZES)
    if heads is None and size is None:
        heads = _count(attention, families.HEAD_COUNTS)
    if heads is None and size is not None:
        heads = query_rows // (size * copies)
    if not heads:
        raise NotUnderstoodError("nothing says how many heads it has")
    size = size or query_rows // (heads * copies)
    if heads * size * copies != query_rows:
        raise NotUnderstoodError(
            f"its queries have {query_rows} values, expected {heads} heads of {size}"
        )
    return heads, size


def _own_count(attention: nn.Module, names: Sequence[str]) -> int | None:
    for name in names:
        value = vars(attention).get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return None


def _count(attention: nn.Module, names: Sequence[str]) -> int | None:
    for source in (attention, getattr(attention, "config", None)):
        for name in names:
            value = getattr(source, name, None)
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                return value
    return None


def find_child(module: nn.Module, names: Sequence[str]) -> str | None:
    """The first of these names under which `module` has a projection, or one in a wrapper."""
    for name in names:
        child = module._modules.get(name)
        if isinstance(child, nn.Linear | Conv1D):
            return name
        if isinstance(child, nn.Module) and isinstance(getattr(child, "linear", None), nn.Linear):
            return f"{name}.linear"
    return None


def rows_of(projection: Any, inputs: bool = False) -> int:
    """Number of outputs of a projection, or of its inputs."""
    weight = projection.weight
    transposed = isinstance(projection, Conv1D)
    return int(weight.shape[(0 if transposed else 1) if inputs else (1 if transposed else 0)])


def tensors_of(projection: nn.Module, inputs: bool = False) -> tuple[tuple[str, int], ...]:
    """Names of a projection's tensors, each with the dimension of its outputs, or inputs."""
    transposed = isinstance(projection, Conv1D)
    if inputs:
        return (("weight", 0 if transposed else 1),)
    tensors = [("weight", 1 if transposed else 0)]
    if getattr(projection, "bias", None) is not None:
        tensors.append(("bias", 0))
    return tuple(tensors)
