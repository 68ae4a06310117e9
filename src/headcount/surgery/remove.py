"""Remove heads from a model: their rows go, the counts follow, and parameter names stay."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn
from transformers import PreTrainedModel

from headcount.errors import HeadcountError
from headcount.heads.anatomy import Anatomy, Part, PrunedRecord, leave_record, pruned_record
from headcount.heads.blocks import AttentionBlock
from headcount.heads.find import find_heads, refuse_adapters
from headcount.heads.mask import HeadMask
from headcount.surgery.class_swap import recast
from headcount.surgery.emptied import empty
from headcount.surgery.grouped import serve_uneven_groups
from headcount.surgery.offloaded import refuse_offloaded
from headcount.surgery.padded import is_projection, pad_projections
from headcount.surgery.resize import is_uneven, keep_rows, update_counts
from headcount.surgery.selection import select_arguments, select_norm_outputs
from headcount.surgery.shared_bias import share_whole_bias
from headcount.surgery.trial import try_cut


@dataclass(frozen=True)
class Removal:
    """What a call of `remove_heads` removed; iterates over the names of the removed heads.

    Attributes:
        removed: names of the removed heads.
        kept: the mask of the heads that are left.
        parameters_before: number of parameters of the model before the removal.
        parameters_after: number of parameters of the model after it.
    """

    removed: tuple[str, ...]
    kept: HeadMask
    parameters_before: int
    parameters_after: int

    def __len__(self) -> int:
        return len(self.removed)

    def __iter__(self) -> Iterator[str]:
        return iter(self.removed)


def remove_heads(model: nn.Module, mask: HeadMask) -> Removal:
    """Cut every head that `mask` does not keep out of the model, in place.

    The model then gives the outputs that it gave under `masked(model, mask)`. Parameters stay the
    same objects with fewer rows, so that tied weights stay tied and requires_grad stays as it was.
    A block without heads computes no attention and adds only the bias of its output projection.
    `save_pretrained` then writes the small model.

    Use `cut_with_optimizer` in the middle of a training: an optimizer and autograd remember the
    old sizes.

    Args:
        model: a `transformers` model, pruned before or not.
        mask: the heads to keep.

    Raises:
        HeadcountError: the mask is for another model, it splits a block's groups in a way that
            the model's code cannot run, or a trial on a copy of a block went wrong. The model is
            then unchanged.
    """
    heads = find_heads(model)
    mask.refuse_other_model(heads)
    kept = mask.by_block()
    for block in heads.blocks:
        _refuse_impossible(block, kept[block.name])
        refuse_adapters(model, block.path)
        refuse_offloaded(model, block, "cut")
    try_cut(model, heads.blocks, kept, _cut)
    before = count_parameters(model)
    gone = HeadMask.all(heads) - mask
    for block in heads.blocks:
        if len(kept[block.name]) < block.num_heads:
            _cut(model.get_submodule(block.path), block, kept[block.name])
    note_kept_heads(model, mask)
    forget_static_caches(model)
    return Removal(gone.names, mask, before, count_parameters(model))


def count_parameters(model: nn.Module) -> int:
    """The number of parameters; tied ones count once."""
    return sum(parameter.numel() for parameter in model.parameters())


def _refuse_impossible(block: AttentionBlock, kept: tuple[int, ...]) -> None:
    if is_uneven(block.anatomy, kept) and not block.anatomy.uneven_groups:
        raise HeadcountError(
            f"{block.name} ({block.path}) keeps its queries fused with shared keys and values; "
            "remove equally many heads from each of its groups"
        )


def _cut(home: nn.Module, block: AttentionBlock, kept: tuple[int, ...]) -> None:
    """Cut one block, given by its home module, down to these heads."""
    anatomy = block.anatomy
    attention = home.get_submodule(anatomy.core)
    if kept and not anatomy.padded:
        _keep_parts(home, block, kept, [part for part in anatomy.parts if not part.whole])
        _adapt(home, anatomy, kept)
    elif not kept and (anatomy.after_projection is not None or anatomy.shares_bias):
        _keep_parts(home, block, kept, anatomy.parts)
        if anatomy.after_projection is not None:
            empty(home, anatomy)
        else:
            share_whole_bias(attention, anatomy, kept)
    else:
        projections = [p for p in anatomy.parts if is_projection(home.get_submodule(p.path))]
        _keep_parts(home, block, kept, projections)
        counted = range(block.born) if anatomy.padded else block.heads
        pad_projections(home, anatomy, counted, kept)
    leave_record(home, PrunedRecord(anatomy, kept))
    if hasattr(home, "set_attention_type"):
        recast(home, Switching)


class Switching:
    """A block of BigBird, which switches to another attention module for a short input."""

    def set_attention_type(self: Any, *args: Any, **kwargs: Any) -> None:
        """Switch as the class does, and remove the same heads from the new module."""
        super().set_attention_type(*args, **kwargs)  # type: ignore[misc]
        record = pruned_record(self)
        assert record is not None
        if record.heads:
            _adapt(self, record.anatomy, record.heads)
        else:
            empty(self, record.anatomy)


def _keep_parts(
    home: nn.Module, block: AttentionBlock, kept: tuple[int, ...], parts: Sequence[Part]
) -> None:
    for part in parts:
        rows, now = block.anatomy.rows_to_keep(part, block.present(part), kept)
        keep_rows(home.get_submodule(part.path), part.tensors, rows, now)


def _adapt(home: nn.Module, anatomy: Anatomy, kept: tuple[int, ...]) -> None:
    """Adapt everything in the forward pass that depends on the number of heads."""
    attention = home.get_submodule(anatomy.core)
    update_counts(home, anatomy, kept)
    select_norm_outputs(home, anatomy, kept)
    select_arguments(attention, anatomy, kept)
    if anatomy.shares_bias:
        share_whole_bias(attention, anatomy, kept)
    serve_uneven_groups(home, anatomy, kept)


def forget_static_caches(model: nn.Module) -> None:
    """Drop caches of an earlier `generate` from the model; they are for more heads."""
    for module in model.modules():
        if isinstance(module, PreTrainedModel):
            vars(module).pop("_cache", None)


def note_kept_heads(model: nn.Module, mask: HeadMask) -> None:
    """Let `save_pretrained` write the kept heads into `config.json`, where loading finds them."""
    config = getattr(model, "config", None)
    if config is None:
        return
    config.quantization_config = {"quant_method": "headcount", "mask": mask.to_dict()}
    if getattr(config, "pruned_heads", None):  # as transformers v4 wrote them
        config.pruned_heads = {}
