"""Recognise an attention block by its structure: names of submodules, shapes, counts.

The rule of the house: everything with parameters inside an attention module must be explained. That
is q, k, v, o and every other tensor of the block. If one has no explanation, the block is reported
with that tensor's name and never touched.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from torch import Tensor, nn

from headcount.heads import families
from headcount.heads.after_projection import read_after_projection
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

WideNorms = tuple[tuple[str, Unit], ...]


def recognise(home: nn.Module, path: str) -> Anatomy | LeftAlone | None:
    """The anatomy of the attention block whose home module is `home`.

    Args:
        home: any module of a model.
        path: its path in the model, for the report.

    Returns:
        The anatomy; the reason if there is attention that is not understood; None if there is none.
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
    """Why a module with `Attention` in its class name has no anatomy."""
    for name in (*families.QUERY, *families.STACKED, *families.INTERLEAVED):
        child = getattr(attention, name, None)
        if isinstance(child, nn.Module) and find_child(attention, (name,)) is None:
            return f"its {name} is a {type(child).__name__}, expected a Linear or Conv1D"
    return "its projections have no names that are known"


def _output_path(home: nn.Module, core: str) -> str | None:
    """The output projection: inside the attention module, or a neighbour of it."""
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
    _refuse_borrowed_values(attention)
    source = _source(type(attention).forward)
    prefix = f"{core}." if core else ""
    shape, qkv = projections(attention, prefix, family)
    out_part = _output_part(home, output, shape)
    others, wide_norms = _other_tensors(attention, prefix, shape, family, output)
    units = {unit for _, unit in wide_norms}
    qkv = tuple(Part(p.path, p.tensors, p.segments, whole=_feeds(p, units, prefix)) for p in qkv)
    if units and len(qkv) != 3:
        raise NotUnderstoodError(f"{wide_norms[0][0]} runs across the heads of a fused projection")
    inside = output.removeprefix(prefix) if not core else ""
    answers = not (family.shares_bias or family.pools_queries)
    after = (
        (family.after_projection or read_after_projection(attention, inside)) if answers else None
    )
    dispatches = "ALL_ATTENTION_FUNCTIONS" in source
    padded = family.padded or _needs_width(attention)
    return Anatomy(
        core=core,
        output=output,
        num_heads=shape.heads,
        num_key_value_heads=shape.key_value_heads,
        head_size=shape.value_size,
        key_size=shape.key_size,
        parts=(*qkv, *others, out_part),
        counts=_counts(attention, core, shape),
        wide_norms=wide_norms,
        arguments=family.arguments,
        after_projection=after,
        shares_bias=family.shares_bias,
        dispatches=dispatches,
        reads_config=_reads_counts_from_config(source),
        uneven_groups=len(qkv) == 3 or padded or dispatches,
        padded=padded,
    )


def _needs_width(attention: nn.Module) -> bool:
    """Whether a switch makes the code need the original width; see `surgery.padded`.

    Some models rotate the hidden states head by head before the projections (wav2vec2-Conformer),
    and some have a norm of its own for each head, in a list (StableLM 2).
    """
    rotates = getattr(attention, "position_embeddings_type", None) == "rotary"
    names = (*families.QUERY_NORMS, *families.KEY_NORMS)
    norms = (getattr(attention, name, None) for name in names)
    return rotates or any(isinstance(norm, nn.Module) and _listed_norms(norm) for norm in norms)


def _listed_norms(norm: nn.Module) -> nn.ModuleList | None:
    """The norms of single heads, if that is all that a module consists of."""
    inside = list(norm.children())
    if len(inside) == 1 and isinstance(inside[0], nn.ModuleList):
        return inside[0] if not list(norm.parameters(recurse=False)) else None
    return None


def _refuse_borrowed_values(attention: nn.Module) -> None:
    """Refuse layers that lend or borrow keys and values (Gemma 3n and 4)."""
    if not getattr(getattr(attention, "config", None), "num_kv_shared_layers", 0):
        return
    if getattr(attention, "store_full_length_kv", False):
        raise NotUnderstoodError("later layers use its keys and values")
    if getattr(attention, "is_kv_shared_layer", False):
        raise NotUnderstoodError("it uses keys and values of an earlier layer")


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


def _output_part(home: nn.Module, output: str, shape: Shape) -> Part:
    projection = home.get_submodule(output)
    out_rows = rows_of(projection, inputs=True)
    if out_rows != shape.heads * shape.value_size:
        raise NotUnderstoodError(
            f"its output projection takes {out_rows} values, expected {shape.heads} heads "
            f"of {shape.value_size}"
        )
    segments = (Segment("query", shape.value_size),)
    return Part(output, tensors_of(projection, inputs=True), segments)


def _other_tensors(
    attention: nn.Module, prefix: str, shape: Shape, family: Family, output: str
) -> tuple[tuple[Part, ...], WideNorms]:
    """The parts besides q, k, v and o, and the norms that run across heads.

    Args:
        attention: the attention module.
        prefix: the path to it from the block's home module, with a dot at the end.
        shape: how many heads it has.
        family: what is known about its class.
        output: path of the output projection.
    """
    known = _known_names(attention, family, output)
    submodules = [
        _submodule_part(name, child, prefix, shape, family)
        for name, child in attention.named_children()
        if name not in known and any(True for _ in child.parameters())
    ]
    parameters = [
        _parameter_part(name, tensor, prefix, shape, family)
        for name, tensor in attention.named_parameters(recurse=False)
    ]
    parts = tuple(part for part in (*submodules, *parameters) if part is not None)
    return parts, tuple((part.path, part.segments[0].unit) for part in parts if part.whole)


def _known_names(attention: nn.Module, family: Family, output: str) -> set[str]:
    """Submodules that need no explanation: q, k, v and o, and those without values per head."""
    known = {*families.QUERY, *families.KEY, *families.VALUE, *families.STACKED_KEY_VALUE}
    known |= {*families.STACKED, *families.INTERLEAVED, family.interleaved, output.split(".")[0]}
    known |= {*families.SHARED_BY_HEADS, *family.harmless, *families.LATENT}
    if find_child(attention, families.LATENT) is not None:
        known |= set(families.LATENT_NEIGHBOURS)
    return known


def _submodule_part(
    name: str, child: nn.Module, prefix: str, shape: Shape, family: Family
) -> Part | None:
    """What to cut from a submodule; None if its tensors are the same for all heads."""
    path = prefix + name
    if name in (*families.QUERY_NORMS, *families.KEY_NORMS, *families.VALUE_NORMS):
        return _norm_part(path, child, shape)
    if name in (*families.ROWS_PER_HEAD, *family.rows):
        return _per_head(path, child, shape, 0)
    if name in family.columns:
        return _per_head(path, child, shape, 1)
    table = _table_per_head(child)
    if table is not None:
        return _per_head(path, child, shape, 1, table)
    shared = family.shares_bias and name == "relative_attention_bias"
    if not shared and not _is_norm_of_size(child, shape.key_size):
        raise NotUnderstoodError(f"nothing is known of its submodule {name}")
    return None


def _norm_part(path: str, norm: nn.Module, shape: Shape) -> Part | None:
    """A norm within a head is left as it is; a row per head is cut; across heads it stays whole."""
    name = path.rpartition(".")[2]
    unit: Unit = "query" if name in families.QUERY_NORMS else "key_value"
    count = shape.heads if unit == "query" else shape.key_value_heads
    size = shape.value_size if name in families.VALUE_NORMS else shape.key_size
    shapes = {tuple(p.shape) for p in norm.parameters()}
    tensors = tuple((n, 0) for n, _ in norm.named_parameters(recurse=False))
    listed = _listed_norms(norm)
    if shapes == {(size,)} and (tensors or (listed is not None and len(listed) == count)):
        return None
    if shapes == {(count, size)}:
        return Part(path, tensors, (Segment(unit, 1),))
    if shapes == {(count * size,)} and name not in families.VALUE_NORMS:
        return Part(path, tensors, (Segment(unit, size),), whole=True)
    raise NotUnderstoodError(f"the shape of {name} fits neither a head nor all heads")


def _per_head(path: str, module: nn.Module, shape: Shape, dim: int, tensor: str = "weight") -> Part:
    tensors = [(tensor, dim)]
    if dim == 0 and getattr(module, "bias", None) is not None:
        tensors.append(("bias", 0))
    weight = getattr(module, tensor, None)
    if weight is None or weight.shape[dim] % shape.heads:
        raise NotUnderstoodError(f"{path} does not divide among {shape.heads} heads")
    return Part(path, tuple(tensors), (Segment("query", weight.shape[dim] // shape.heads),))


def _table_per_head(module: nn.Module) -> str | None:
    """The name of a submodule's only parameter, if it is known to have a column per head."""
    names = [name for name, _ in module.named_parameters()]
    return names[0] if len(names) == 1 and names[0] in families.COLUMNS_PER_HEAD else None


def _is_norm_of_size(module: nn.Module, size: int) -> bool:
    return all(tuple(p.shape) == (size,) for p in module.parameters())


def _parameter_part(
    name: str, tensor: Tensor, prefix: str, shape: Shape, family: Family
) -> Part | None:
    """What to cut from a parameter of the attention module itself; None for nothing."""
    shared = name in families.SHARED_BY_HEADS and tensor.shape[-1] == shape.key_size
    if shared or name in family.harmless:
        return None
    if name not in (*families.ROWS_PER_HEAD, *families.COLUMNS_PER_HEAD, *family.rows):
        raise NotUnderstoodError(f"nothing is known of its parameter {name}")
    if family.padded:
        return None
    dim = 1 if name in families.COLUMNS_PER_HEAD else 0
    rows = tensor.shape[dim]
    if rows % shape.heads:
        raise NotUnderstoodError(f"{name} has {rows} values for {shape.heads} heads")
    return Part(prefix.rstrip("."), ((name, dim),), (Segment("query", rows // shape.heads),))


def _feeds(part: Part, units: set[Unit], prefix: str) -> bool:
    """Whether a normalisation across heads reads all rows of this projection."""
    name = part.path.removeprefix(prefix)
    if name in families.QUERY:
        return "query" in units
    return name in families.KEY and "key_value" in units


def _counts(attention: nn.Module, core: str, shape: Shape) -> tuple[Count, ...]:
    """The attributes that must follow the number of heads."""
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


def _reads_counts_from_config(source: str) -> bool:
    names = (*families.HEAD_COUNTS, *families.KEY_VALUE_COUNTS)
    return any(f"config.{name}" in source for name in names)
