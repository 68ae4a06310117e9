"""Let a model tell its attention weights, block by block, with the heads that are left."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from headcount.errors import HeadcountError
from headcount.heads.blocks import AttentionBlock, HeadMap
from headcount.mode import evaluating


def refuse_without_tokens(model: PreTrainedModel, heads: HeadMap) -> None:
    """Raise for a model that does not read text alone."""
    towers = {block.name.rpartition(".")[0] for block in heads.blocks}
    if model.main_input_name != "input_ids" or any("." in tower for tower in towers):
        raise HeadcountError(
            f"{type(model).__name__} does not read text alone, and roles are about tokens and "
            "words; give a text model: an encoder, a decoder or an encoder-decoder"
        )


@contextmanager
def telling(model: PreTrainedModel) -> Iterator[None]:
    """Have a model compute its attention in the one way that gives the weights."""
    before = model.config._attn_implementation or "eager"
    model.set_attn_implementation("eager")
    try:
        with evaluating(model), torch.inference_mode():
            yield
    finally:
        model.set_attn_implementation(before)


def attention_of(
    model: PreTrainedModel, heads: HeadMap, inputs: dict[str, Tensor]
) -> Iterator[tuple[AttentionBlock, Tensor]]:
    """Each block that has heads, with its weights: batch × heads × queries × keys.

    A block that serves several layers (ALBERT) comes once for each.

    Raises:
        HeadcountError: the model does not tell its weights.
    """
    with _calls(model, heads) as called:
        output: Any = model(**inputs, output_attentions=True)
    for kind in dict.fromkeys(block.kind for block in heads.blocks):
        layers = [block for block in called if block.kind == kind]
        recorded = output.get(f"{kind}_attentions", output.get("attentions"))
        if not any(block.heads for block in heads.blocks if block.kind == kind):
            continue
        if not layers or len(layers) != len(recorded or ()):
            raise _silent(model, kind)
        for block, weights in zip(layers, recorded, strict=True):
            if block.heads and weights is None:
                raise _silent(model, kind)
            if block.heads:
                yield block, weights.float()


@contextmanager
def _calls(model: PreTrainedModel, heads: HeadMap) -> Iterator[list[AttentionBlock]]:
    """The blocks in the order of their calls: layers may share one."""
    called: list[AttentionBlock] = []

    def note(block: AttentionBlock, *_: Any) -> None:
        called.append(block)

    with ExitStack() as hooks:
        for block in heads.blocks:
            home = model.get_submodule(block.path)
            hooks.enter_context(home.register_forward_pre_hook(partial(note, block)))
        yield called


def _silent(model: PreTrainedModel, kind: str) -> HeadcountError:
    return HeadcountError(
        f"{type(model).__name__} does not tell the attention weights of its {kind}; use a model "
        "whose forward pass returns them when output_attentions is set"
    )
