"""Recognise an attention block by its structure: names of submodules, shapes, counts.

The rule of the house: everything with parameters inside an attention module must be explained.
What is not explained is reported with its name and never touched.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from torch import nn

from headcount.heads import families
from headcount.heads.after_projection import read_tail
from headcount.heads.anatomy import Anatomy, Count, Part, Role, Segment, Unit
from headcount.heads.blocks import LeftAlone
from headcount.heads.families import Family, family_of
from headcount.heads.projections import (
    NotUnderstoodError,
    Shape,
    find_child,
    has_projections,
    projections,
    rows_of,
    tensors_of,
)


def recognise(home: nn.Module, path: str) -> Anatomy | LeftAlone | None:
    """The anatomy of the attention block that lives in `home`, if one does.

    Returns None where there is no attention, and the reason where there is one that is not
    understood.
    """
    for core in ("", *(name for name, _ in home.named_children())):
        attention = home.get_submodule(core)
        if not has_projections(attention):
            continue
        output = _output_path(home, core)
        if output is None:
            continue
        try:
            return _anatomy(home, core, output)
        except NotUnderstoodError as why:
            return LeftAlone(f"{path}.{core}".strip("."), str(why))
    return None


def why_not_recognised(attention: nn.Module) -> str:
    """Why a module that calls itself attention has no anatomy."""
    for name in (*families.QUERY, *families.STACKED, *families.INTERLEAVED):
        child = getattr(attention, name, None)
        if isinstance(child, nn.Module) and find_child(attention, (name,)) is None:
            return f"its {name} is a {type(child).__name__}, expected a Linear or Conv1D"
    return "its projections have no names that are known"


def _output_path(home: nn.Module, core: str) -> str | None:
    """The output projection: inside the attention module, or next door to it."""
    attention = home.get_submodule(core)
    inside = find_child(attention, families.OUTPUT)
    if inside is not None:
        return inside if not core else None  # the attention module is its own home
    if not core:
        return None
    for path in families.OUTPUT_NEXT_DOOR:
        parent, _, name = path.rpartition(".")
        try:
            found = find_child(home.get_submodule(parent), (name,))
        except AttributeError:
            continue
        if found is not None:
            return f"{parent}.{found}".strip(".")
    return None


def _anatomy(home: nn.Module, core: str, output: str) -> Anatomy:
    attention = home.get_submodule(core)
    family = family_of(attention)
    if family.refused:
        raise NotUnderstoodError(family.refused)
    _refuse_foreign_weights(attention)
    source = _source(type(attention).forward)
    prefix = f"{core}." if core else ""
    shape, qkv = projections(attention, prefix, family)
    out_rows = rows_of(home.get_submodule(output), inputs=True)
    if out_rows != shape.heads * shape.value_size:
        raise NotUnderstoodError(
            f"its output projection takes {out_rows} values, expected {shape.heads} heads "
            f"of {shape.value_size}"
        )
    out_part = Part(
        output,
        tensors_of(home.get_submodule(output), inputs=True),
        (Segment("query", shape.value_size),),
    )
    extras, wide_norms = explain_extras(attention, prefix, shape, family, output)
    units = {unit for _, unit in wide_norms}
    qkv = tuple(Part(p.path, p.tensors, p.segments, whole=_feeds(p, units, prefix)) for p in qkv)
    if units and len(qkv) != 3:
        raise NotUnderstoodError(f"{wide_norms[0][0]} runs across the heads of a fused projection")
    inside = output.removeprefix(prefix) if not core else ""
    answers = not (family.shares_bias or family.pools_queries)
    tail = (family.tail or read_tail(attention, inside)) if answers else None
    dispatches = "ALL_ATTENTION_FUNCTIONS" in source
    return Anatomy(
        core=core,
        output=output,
        num_heads=shape.heads,
        num_key_value_heads=shape.key_value_heads,
        head_size=shape.value_size,
        key_size=shape.key_size,
        parts=(*qkv, *extras, out_part),
        counts=_counts(attention, core, shape),
        wide_norms=wide_norms,
        arguments=family.arguments,
        tail=tail,
        shares_bias=family.shares_bias,
        dispatches=dispatches,
        reads_config=_reads_counts_from_config(source),
        uneven_groups=len(qkv) == 3 or family.padded or dispatches,
        padded=family.padded,
    )


def _refuse_foreign_weights(attention: nn.Module) -> None:
    for name, parameter in attention.named_parameters():
        if not parameter.is_floating_point():
            raise NotUnderstoodError(f"{name} holds {parameter.dtype}, expected floating point")


@cache
def _source(forward: Callable[..., Any]) -> str:
    try:
        return inspect.getsource(forward)
    except (OSError, TypeError):
        return ""


def _reads_counts_from_config(source: str) -> bool:
    names = (*families.HEAD_COUNTS, *families.KEY_VALUE_COUNTS)
    return any(f"config.{name}" in source for name in names)


def _feeds(part: Part, units: set[Unit], prefix: str) -> bool:
    """Whether this projection's rows are all read by a normalisation across heads."""
    name = part.path.removeprefix(prefix)
    if name in families.QUERY:
        return "query" in units
    return name in families.KEY and "key_value" in units


def _counts(attention: nn.Module, core: str, shape: Shape) -> tuple[Count, ...]:
    """The attributes that follow the number of heads."""
    roles: list[tuple[Sequence[str], Role, int]] = [
        (families.HEAD_COUNTS, "heads", shape.heads),
        (families.KEY_VALUE_COUNTS, "key_value", shape.key_value_heads),
        (families.GROUP_SIZES, "groups", shape.heads // shape.key_value_heads),
        (families.WIDTHS, "width", shape.heads * shape.value_size),
        (families.QUERY_WIDTHS, "query_width", shape.heads * shape.key_size),
        (families.KEY_VALUE_WIDTHS, "key_value_width", shape.key_value_heads * shape.value_size),
    ]
    return tuple(
        Count(core, name, role)
        for names, role, expected in roles
        for name in names
        if type(vars(attention).get(name)) is int and vars(attention)[name] == expected
    )


WideNorms = tuple[tuple[str, Unit], ...]


def explain_extras(
    attention: nn.Module, prefix: str, shape: Shape, family: Family, output: str
) -> tuple[tuple[Part, ...], WideNorms]:
    """The parts besides q, k, v and o, and the norms that run across heads.

    Args:
        attention: the attention module.
        prefix: the path to it from the block's home module, with a dot behind.
        shape: its heads.
        family: what is known of its class.
        output: path of the output projection.
    """
    known = {*families.QUERY, *families.KEY, *families.VALUE, *families.STACKED_KEY_VALUE}
    known |= {*families.STACKED, *families.INTERLEAVED, family.interleaved, output.split(".")[0]}
    known |= {*families.SHARED_BY_HEADS, *family.harmless, *families.LATENT}
    if find_child(attention, families.LATENT) is not None:
        known |= set(families.LATENT_NEIGHBOURS)
    parts: list[Part] = []
    wide: list[tuple[str, Unit]] = []
    for name, child in attention.named_children():
        if name in known or not any(True for _ in child.parameters()):
            continue
        if name in (*families.QUERY_NORMS, *families.KEY_NORMS, *families.VALUE_NORMS):
            _explain_norm(prefix + name, child, shape, parts, wide)
        elif name in (*families.ROWS_PER_HEAD, *family.rows):
            parts.append(_per_head(prefix + name, child, shape, 0))
        elif name in family.columns:
            parts.append(_per_head(prefix + name, child, shape, 1))
        elif (table := _table_per_head(child)) is not None:
            parts.append(_per_head(prefix + name, child, shape, 1, table))
        elif family.shares_bias and name == "relative_attention_bias":
            continue
        elif not _is_norm_of_size(child, shape.key_size):
            raise NotUnderstoodError(f"nothing is known of its submodule {name}")
    for name, tensor in attention.named_parameters(recurse=False):
        shared = name in families.SHARED_BY_HEADS and tensor.shape[-1] == shape.key_size
        if shared or name in family.harmless:
            continue
        if name in (*families.ROWS_PER_HEAD, *families.COLUMNS_PER_HEAD, *family.rows):
            if family.padded:
                continue
            dim = 1 if name in families.COLUMNS_PER_HEAD else 0
            rows = tensor.shape[dim]
            if rows % shape.heads:
                raise NotUnderstoodError(f"{name} has {rows} values for {shape.heads} heads")
            segment = Segment("query", rows // shape.heads)
            parts.append(Part(prefix.rstrip("."), ((name, dim),), (segment,)))
        else:
            raise NotUnderstoodError(f"nothing is known of its parameter {name}")
    return tuple(parts), tuple(wide)


def _is_norm_of_size(module: nn.Module, size: int) -> bool:
    return all(tuple(p.shape) == (size,) for p in module.parameters())


def _table_per_head(module: nn.Module) -> str | None:
    """The name of a submodule's only parameter, if it is known to have a column per head."""
    names = [name for name, _ in module.named_parameters()]
    return names[0] if len(names) == 1 and names[0] in families.COLUMNS_PER_HEAD else None


def _per_head(path: str, module: nn.Module, shape: Shape, dim: int, tensor: str = "weight") -> Part:
    tensors = [(tensor, dim)]
    if dim == 0 and getattr(module, "bias", None) is not None:
        tensors.append(("bias", 0))
    weight = getattr(module, tensor, None)
    if weight is None or weight.shape[dim] % shape.heads:
        raise NotUnderstoodError(f"{path} does not divide among {shape.heads} heads")
    return Part(path, tuple(tensors), (Segment("query", weight.shape[dim] // shape.heads),))


def _explain_norm(
    path: str, norm: nn.Module, shape: Shape, parts: list[Part], wide: list[tuple[str, Unit]]
) -> None:
    """A norm per head is untouched, one with a row per head is cut, one across heads is kept."""
    name = path.rpartition(".")[2]
    unit: Unit = "query" if name in families.QUERY_NORMS else "key_value"
    count = shape.heads if unit == "query" else shape.key_value_heads
    size = shape.value_size if name in families.VALUE_NORMS else shape.key_size
    shapes = {tuple(p.shape) for p in norm.parameters()}
    tensors = tuple((n, 0) for n, _ in norm.named_parameters(recurse=False))
    if shapes == {(size,)}:
        return
    if shapes == {(count, size)}:
        parts.append(Part(path, tensors, (Segment(unit, 1),)))
    elif shapes == {(count * size,)} and name not in families.VALUE_NORMS:
        wide.append((path, unit))
        parts.append(Part(path, tensors, (Segment(unit, size),), whole=True))
    else:
        raise NotUnderstoodError(f"the shape of {name} fits neither a head nor all heads")
