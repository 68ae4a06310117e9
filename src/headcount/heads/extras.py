"""Explain every tensor of an attention module besides its projections, or refuse the module.

What has values per head is cut with the heads; what all heads share stays; a normalisation across
heads stays whole. A tensor that nothing is known of could be any of these, so it is not guessed.
"""

from __future__ import annotations

from torch import nn

from headcount.heads import families
from headcount.heads.anatomy import Part, Segment, Unit
from headcount.heads.families import Family
from headcount.heads.projections import NotUnderstoodError, Shape, find_child

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
