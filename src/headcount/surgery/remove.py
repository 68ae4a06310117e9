"""Remove heads from a model for real: the rows go, the counts follow, the names stay."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn
from transformers import PreTrainedModel

from headcount.errors import HeadcountError
from headcount.heads.anatomy import Anatomy, Part, Remains, remains_of, remember
from headcount.heads.blocks import AttentionBlock
from headcount.heads.find import find_heads
from headcount.heads.mask import HeadMask
from headcount.surgery.class_swap import recast
from headcount.surgery.emptied import empty
from headcount.surgery.grouped import serve_uneven_groups
from headcount.surgery.padded import is_projection, pad_projections
from headcount.surgery.resize import is_uneven, keep_rows, update_counts
from headcount.surgery.selection import select_arguments, select_norm_outputs
from headcount.surgery.shared_bias import share_whole_bias


@dataclass(frozen=True)
class Removal:
    """What a call of `remove_heads` took away; iterates over the names of the heads that went.

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

    def __len__(self) -> int:
        return len(self.removed)

    def __iter__(self) -> Iterator[str]:
        return iter(self.removed)


def remove_heads(model: nn.Module, mask: HeadMask) -> Removal:
    """Cut every head that `mask` does not keep out of the model, in place.

    The model then gives the outputs that it gave under `masked(model, mask)`. Parameters stay the
    same objects with fewer rows, so that tied weights stay tied and requires_grad stays as it was.
    In the middle of a training, where an optimizer and autograd remember their old sizes, take
    `cut_with_optimizer`. A block without heads computes no attention and adds
    only the bias of its output projection. `save_pretrained` then writes the small model.

    Args:
        model: a `transformers` model, pruned before or not.
        mask: the heads to keep.

    Raises:
        HeadcountError: the mask is for another model, or it divides a block's groups in a way
            that its code cannot run. The model is then untouched.
    """
    heads = find_heads(model)
    mask.refuse_other_model(heads)
    kept = mask.by_block()
    for block in heads.blocks:
        _refuse_impossible(block, kept[block.name])
    before = count_parameters(model)
    gone = HeadMask.all(heads) - mask
    for block in heads.blocks:
        if len(kept[block.name]) < block.num_heads:
            _cut(model, block, kept[block.name])
    note_kept_heads(model, mask)
    forget_static_caches(model)
    return Removal(gone.names, mask, before, count_parameters(model))


def count_parameters(model: nn.Module) -> int:
    """Number of parameters, tied ones counted once."""
    return sum(parameter.numel() for parameter in model.parameters())


def _refuse_impossible(block: AttentionBlock, kept: tuple[int, ...]) -> None:
    if is_uneven(block.anatomy, kept) and not block.anatomy.uneven_groups:
        raise HeadcountError(
            f"{block.name} ({block.path}) keeps its queries fused with shared keys and values; "
            "remove equally many heads from each of its groups"
        )


def _cut(model: nn.Module, block: AttentionBlock, kept: tuple[int, ...]) -> None:
    home, anatomy = model.get_submodule(block.path), block.anatomy
    attention = home.get_submodule(anatomy.core)
    if kept and not anatomy.padded:
        _keep_parts(home, block, kept, [part for part in anatomy.parts if not part.whole])
        _adapt(home, anatomy, kept)
    elif not kept and (anatomy.tail is not None or anatomy.shares_bias):
        _keep_parts(home, block, kept, anatomy.parts)
        if anatomy.tail is not None:
            empty(home, anatomy)
        else:
            share_whole_bias(attention, anatomy, kept)
    else:
        projections = [p for p in anatomy.parts if is_projection(home.get_submodule(p.path))]
        _keep_parts(home, block, kept, projections)
        counted = range(block.born) if anatomy.padded else block.heads
        pad_projections(home, anatomy, counted, kept)
    remember(home, Remains(anatomy, kept))
    if hasattr(home, "set_attention_type"):
        recast(home, Switching)


class Switching:
    """A block of BigBird, which makes itself another attention module for a short input."""

    def set_attention_type(self: Any, *args: Any, **kwargs: Any) -> None:
        """Switch as the class does, and take the heads that are gone from the new module too."""
        super().set_attention_type(*args, **kwargs)  # type: ignore[misc]
        remains = remains_of(self)
        assert remains is not None
        if remains.heads:
            _adapt(self, remains.anatomy, remains.heads)
        else:
            empty(self, remains.anatomy)


def _keep_parts(
    home: nn.Module, block: AttentionBlock, kept: tuple[int, ...], parts: Sequence[Part]
) -> None:
    for part in parts:
        present = tuple(range(block.born)) if part.whole else block.heads
        rows, now = block.anatomy.rows_to_keep(part, present, kept)
        keep_rows(home.get_submodule(part.path), part.tensors, rows, now)


def _adapt(home: nn.Module, anatomy: Anatomy, kept: tuple[int, ...]) -> None:
    """Tell the forward pass of its new number of heads, in every way in which it may ask."""
    attention = home.get_submodule(anatomy.core)
    update_counts(home, anatomy, kept)
    select_norm_outputs(home, anatomy, kept)
    select_arguments(attention, anatomy, kept)
    if anatomy.shares_bias:
        share_whole_bias(attention, anatomy, kept)
    serve_uneven_groups(home, anatomy, kept)


def forget_static_caches(model: nn.Module) -> None:
    """Drop caches that earlier generations left on the model, made for more heads."""
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
