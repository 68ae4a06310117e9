"""A pruned model still tells its attention weights: those of the heads that it has left."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor
from transformers import PreTrainedModel

import headcount as hc
from headcount import AttentionBlock, HeadMap
from tests.tiny import Family, build, difference, families, mask_for, masks, run


def weights_per_block(output: Any, heads: HeadMap) -> Iterator[tuple[AttentionBlock, Tensor]]:
    """Each recorded layer's attention weights with the block that they come from."""
    for stack in dict.fromkeys(block.name.rpartition(".")[0] for block in heads.blocks):
        tower = stack.rpartition(".")[0]
        told = output[f"{tower}_model_output"] if tower else output
        recorded = told.get(f"{stack}_attentions", told.get("attentions"))
        if recorded is None and len(heads) == heads.born:
            pytest.skip(f"transformers {transformers.__version__} tells no weights here")
        blocks = [block for block in heads.blocks if block.name.rpartition(".")[0] == stack]
        assert len(recorded) % len(blocks) == 0  # ALBERT uses its one block in every layer
        yield from zip(blocks * (len(recorded) // len(blocks)), recorded, strict=True)


@torch.no_grad()
def attend(model: PreTrainedModel, family: Family) -> list[tuple[AttentionBlock, Tensor]]:
    output = model(**family.inputs(), output_attentions=True)
    return list(weights_per_block(output, hc.find_heads(model)))


@masks("half", "empty_first_block", "empty_every_block")
@families()
def test_every_layer_tells_the_weights_of_the_heads_it_has_left(
    family: Family, mask_name: str
) -> None:
    whole, model = attend(build(family, "eager"), family), build(family, "eager")
    hc.remove_heads(model, mask_for(model, mask_name))
    for (block, weights), (_, before) in zip(attend(model, family), whole, strict=True):
        assert weights.shape == (before.shape[0], block.num_heads, *before.shape[2:])


@masks("half", "three_heads_each")
@families()
def test_kept_heads_of_the_first_layer_attend_as_before(family: Family, mask_name: str) -> None:
    whole, model = attend(build(family, "eager"), family), build(family, "eager")
    hc.remove_heads(model, mask_for(model, mask_name))
    seen = set()
    for (block, weights), (_, before) in zip(attend(model, family), whole, strict=True):
        # Cross-attention of layer 0 reads the encoder, which was pruned.
        if block.layer == 0 and block.kind != "cross" and block.name not in seen:
            torch.testing.assert_close(weights, before[:, list(block.heads)])
            seen.add(block.name)
    assert seen


@masks("half", "empty_first_block")
@families("bert", "deberta-v2", "gpt2", "llama", "t5", "bart", "vit")
def test_a_model_that_told_its_weights_can_still_be_pruned(family: Family, mask_name: str) -> None:
    """Some versions of transformers leave their recording forward pass on the modules."""
    model, inputs = build(family, "eager"), family.inputs()
    mask = mask_for(model, mask_name)
    attend(model, family)
    with hc.masked(model, mask):
        closed = run(model, inputs)
    hc.remove_heads(model, mask)
    assert difference(run(model, inputs), closed) < 1e-5
    assert all(weights.shape[1] == block.num_heads for block, weights in attend(model, family))
