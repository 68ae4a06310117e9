"""What transformers v4 had and v5 has not: `prune_heads`, the argument `head_mask`, `pruned_heads`.

v4 named heads by the number of their layer, which means something in a model with one stack of
layers alone. Where a model has several, its blocks have names: `encoder.0`, `cross.3`.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from reprlib import repr as in_brief
from typing import Any

import torch
from torch import Tensor, nn

from headcount.errors import HeadcountError
from headcount.gates import masked
from headcount.heads.blocks import AttentionBlock, HeadMap, Kind
from headcount.heads.find import find_heads
from headcount.heads.mask import HeadMask
from headcount.surgery.remove import Removal, remove_heads


def prune_heads(model: nn.Module, heads_to_prune: Mapping[Any, Iterable[int]]) -> Removal:
    """Remove heads by layer, in place, as `model.prune_heads` of transformers v4 did.

    Heads have their original numbers, also in a model that was pruned before. Heads that are gone
    already, or are given twice, do no harm.

    Args:
        model: a `transformers` model, pruned before or not.
        heads_to_prune: lists of heads by the layer's number, as in `{0: [1, 2], 5: [0]}`. A model
            with several stacks of layers, such as an encoder-decoder, needs the names of blocks
            instead: `{"encoder.0": [1, 2]}`. Every model takes them.

    Returns:
        What was removed. `config.json` keeps the mask of what is left, not v4's `pruned_heads`.

    Raises:
        HeadcountError: there is no such layer or head, a number leaves open which block is meant,
            or the heads cannot be removed. The model is then unchanged.
    """
    try:
        mask = mask_without(heads_to_prune, find_heads(model))
    except ValueError as error:
        raise HeadcountError(
            f"heads_to_prune {error}; give lists of heads by layer, as {{0: [1, 2]}}, or by block, "
            "as {'encoder.0': [1, 2]}"
        ) from error
    return remove_heads(model, mask)


def mask_without(pruned: Any, heads: HeadMap) -> HeadMask:
    """The mask that keeps every present head except those that are given by layer or block.

    Args:
        pruned: may come from a file and be anything. What is wrong is refused, because a wrong
            number would remove a head of another layer.
        heads: the map of the model's heads.

    Raises:
        ValueError: what is wrong, to be put into a sentence.
    """
    if not isinstance(pruned, Mapping):
        raise ValueError(f"is {in_brief(pruned)}, expected lists of heads by layer")
    blocks = [_block(key, heads) for key in pruned]
    if len({block.name for block in blocks}) < len(blocks):
        raise ValueError("names a layer twice")
    gone = {
        block.offset + head
        for block, (key, numbers) in zip(blocks, pruned.items(), strict=True)
        for head in _numbers(numbers, key, block)
    }
    return HeadMask.from_indices(heads, set(heads.indices) - gone)


def _block(key: Any, heads: HeadMap) -> AttentionBlock:
    """The block with this name or layer number. In JSON a number is text."""
    by_name = {block.name: block for block in heads.blocks}
    if isinstance(key, str) and key in by_name:
        return by_name[key]
    is_number = isinstance(key, str) and re.fullmatch("[0-9]{1,9}", key)
    layer = int(key) if is_number else _whole_number(key)
    if layer is None or layer < 0:
        raise ValueError(f"has {in_brief(key)} as a layer, expected a number from 0")
    stacks = dict.fromkeys(name.rpartition(".")[0] for name in by_name)
    if len(stacks) > 1:
        raise ValueError(
            f"has layer {layer}, but this model has several stacks of layers, {', '.join(stacks)}, "
            "so that a number leaves open which is meant"
        )
    for block in heads.blocks:
        if block.layer == layer:
            return block
    raise ValueError(
        f"has layer {layer}, which this model does not have: its blocks run from "
        f"{heads.blocks[0].name} to {heads.blocks[-1].name}"
    )


def _numbers(given: Any, key: Any, block: AttentionBlock) -> list[int]:
    is_list = isinstance(given, Iterable) and not isinstance(given, str | bytes | Mapping)
    values = list(given) if is_list and getattr(given, "ndim", 1) == 1 else [None]
    numbers = [_whole_number(value) for value in values]
    whole = [number for number in numbers if number is not None and 0 <= number < block.born]
    if len(whole) < len(numbers):
        found = " ".join(in_brief(given).split())  # an array has lines
        raise ValueError(
            f"has {found} for layer {key}, expected numbers from 0 to {block.born - 1}"
        )
    return whole


def _whole_number(value: Any) -> int | None:
    """A whole number of any library; None for anything else, also for true and false."""
    try:
        return None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        return None


@contextmanager
def head_mask(
    model: nn.Module,
    mask: Tensor | None = None,
    *,
    decoder: Tensor | None = None,
    cross: Tensor | None = None,
) -> Iterator[HeadMap]:
    """Multiply heads by a mask until the block ends, as the argument `head_mask` of v4 did.

    v4 multiplied the attention weights of a head, after softmax and dropout. This multiplies the
    head's output, which is the same number: the output is linear in these weights. It works with
    every attention kernel. Attention weights that a model returns are as without a mask.

    A mask has the shape (layers, heads), or (heads,) for every layer: 1 keeps a head, 0 closes it,
    and any number between may be given. Gradients flow into a mask that requires them. A pruned
    model takes the original number of heads; the numbers of removed ones are not read.

    Args:
        model: the model; see `masked` for what is refused.
        mask: for the self-attention. In an encoder-decoder for the encoder: v4's `head_mask`.
        decoder: for the decoder's self-attention in an encoder-decoder: v4's `decoder_head_mask`.
        cross: for the cross-attention: v4's `cross_attn_head_mask`. None keeps all heads there.

    Yields:
        The map of the model's heads.

    Raises:
        HeadcountError: a mask has another shape, or the model has nothing that it could be for.
    """
    heads = find_heads(model)
    kinds: dict[Kind, Tensor | None] = {"encoder": mask, "decoder": decoder, "cross": cross}
    if decoder is None and not any(block.kind == "encoder" for block in heads.blocks):
        kinds |= {"encoder": None, "decoder": mask}  # a decoder alone, whose mask was `head_mask`
    rows: dict[str, Tensor] = {}
    for kind, given in kinds.items():
        if given is not None:
            rows |= _rows(torch.as_tensor(given), kind, heads)
    device = next(iter(rows.values())).device if rows else None
    # Taken apart and put together by operations that keep nothing for the backward pass, so that
    # several batches can be run backward within one block.
    gates = [
        rows[block.name][head : head + 1].to(device)
        if block.name in rows
        else torch.ones(1, device=device)
        for block in heads.blocks
        for head in block.heads
    ]
    with masked(model, torch.cat(gates) if gates else ()):
        yield heads


def _rows(mask: Tensor, kind: Kind, heads: HeadMap) -> dict[str, Tensor]:
    """The numbers of a mask for each block of one kind, by the block's name."""
    blocks = [block for block in heads.blocks if block.kind == kind]
    if not blocks:
        kinds = ", ".join(dict.fromkeys(block.kind for block in heads.blocks))
        raise HeadcountError(
            f"there is a head mask for {kind} blocks, but this model has only {kinds} blocks; "
            "leave it out"
        )
    if [block.layer for block in blocks] != list(range(len(blocks))):
        raise HeadcountError(
            f"the {kind} blocks of this model, {', '.join(block.name for block in blocks)}, are "
            "not one for each layer of one stack, so that the rows of a head mask leave open which "
            "is meant; use headcount.masked with one number per head"
        )
    widths = {block.born for block in blocks}
    if len(widths) > 1:
        raise HeadcountError(
            f"the {kind} blocks of this model have different numbers of heads, and a head mask has "
            "the same for every layer; use headcount.masked with one number per head"
        )
    shape = (len(blocks), *widths)
    if tuple(mask.shape) not in (shape, shape[1:]):
        raise HeadcountError(
            f"a head mask has the shape {tuple(mask.shape)}, expected {shape} or {shape[1:]} for "
            f"the {kind} blocks of this model; give a number for every head"
        )
    whole = mask if mask.is_floating_point() else mask.to(torch.get_default_dtype())
    by_layer = whole.expand(shape).unbind()
    return {block.name: row for block, row in zip(blocks, by_layer, strict=True)}
