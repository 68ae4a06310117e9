"""Remove heads from a model for real: the rows go, the counts follow, the names stay."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from headcount.errors import HeadcountError
from headcount.heads.anatomy import Anatomy
from headcount.heads.blocks import AttentionBlock
from headcount.heads.find import find_heads
from headcount.heads.mask import HeadMask
from headcount.heads.remains import Remains, remember
from headcount.surgery.counts import update_counts
from headcount.surgery.emptied import empty
from headcount.surgery.grouped import serve_uneven_groups
from headcount.surgery.padded import pad_projections
from headcount.surgery.resize import keep_rows
from headcount.surgery.select import select_arguments, select_norm_outputs
from headcount.surgery.shared_bias import share_whole_bias


@dataclass(frozen=True)
class Removal:
    """What a call of `remove_heads` took away.

    Attributes:
        removed: names of the heads that went.
        kept: the mask of the heads that are left.
        parameters_before: number of parameters of the model before.
        parameters_after: number of parameters of the model now.
    """

    removed: tuple[str, ...]
    kept: HeadMask
    parameters_before: int
    parameters_after: int


def remove_heads(model: nn.Module, mask: HeadMask) -> Removal:
    """Cut every head that `mask` does not keep out of the model, in place.

    The model then gives the outputs that it gave under `masked(model, mask)`. Parameters stay the
    same objects with fewer rows, so that tied weights stay tied and requires_grad stays as it was;
    an optimizer's state must be made anew. A block without heads computes no attention and adds
    only the bias of its output projection. `save_pretrained` then writes the small model.

    Args:
        model: a `transformers` model, pruned before or not.
        mask: the heads to keep.

    Raises:
        HeadcountError: the mask is for another model, or it leaves a block in a state that its
            code cannot run. The model is then untouched.
    """
    heads = find_heads(model)
    mask.refuse_other_model(heads)
    kept = mask.by_block()
    for block in heads.blocks:
        _refuse_impossible(block, kept[block.name])
    before = count_parameters(model)
    removed = tuple(name for name in heads.names if name not in set(mask.names))
    for block in heads.blocks:
        if len(kept[block.name]) < block.num_heads:
            _cut(model, block, kept[block.name])
    note_kept_heads(model, mask)
    return Removal(removed, mask, before, count_parameters(model))


def count_parameters(model: nn.Module) -> int:
    """Number of parameters, tied ones counted once."""
    return sum(parameter.numel() for parameter in model.parameters())


def _refuse_impossible(block: AttentionBlock, kept: tuple[int, ...]) -> None:
    anatomy = block.anatomy
    if not kept and block.heads and not anatomy.can_be_emptied:
        raise HeadcountError(
            f"{block.name} ({block.path}) cannot live without a head: its code does more after "
            "the attention than headcount understands; keep at least one of its heads"
        )
    sizes = {
        sum(head // anatomy.group_size == kv for head in kept)
        for kv in anatomy.key_value_heads(kept)
    }
    if len(sizes) > 1 and not anatomy.uneven_groups:
        raise HeadcountError(
            f"{block.name} ({block.path}) keeps its queries fused with shared keys and values; "
            "remove equally many heads from each of its groups"
        )


def _cut(model: nn.Module, block: AttentionBlock, kept: tuple[int, ...]) -> None:
    home, anatomy = model.get_submodule(block.path), block.anatomy
    for part in anatomy.parts:
        if part.whole and kept:
            continue
        rows, now = anatomy.rows_to_keep(part, _rows_present(block, part.whole), kept)
        keep_rows(home.get_submodule(part.path), part.tensors, rows, now)
    if anatomy.padded:
        pad_projections(home, anatomy, kept)
    else:
        _adapt(home, anatomy, kept)
    if not kept and anatomy.tail is not None:
        empty(home.get_submodule(anatomy.core), anatomy)
    remember(home, Remains(anatomy, kept))


def _adapt(home: nn.Module, anatomy: Anatomy, kept: tuple[int, ...]) -> None:
    """Tell the forward pass of its new number of heads, in every way in which it may ask."""
    attention = home.get_submodule(anatomy.core)
    update_counts(home, anatomy, kept)
    select_norm_outputs(home, anatomy, kept)
    select_arguments(attention, anatomy, kept)
    if anatomy.shares_bias:
        share_whole_bias(attention, anatomy, kept)
    if kept:
        serve_uneven_groups(home, anatomy, kept)


def _rows_present(block: AttentionBlock, whole: bool) -> tuple[int, ...]:
    return tuple(range(block.born)) if whole else block.heads


def note_kept_heads(model: nn.Module, mask: HeadMask) -> None:
    """Let `save_pretrained` write the kept heads into `config.json`, where loading finds them."""
    config = getattr(model, "config", None)
    if config is None:
        return
    config.quantization_config = {"quant_method": "headcount", "mask": mask.to_dict()}
    if getattr(config, "pruned_heads", None):  # as transformers v4 wrote them
        config.pruned_heads = {}
