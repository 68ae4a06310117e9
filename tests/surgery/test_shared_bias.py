"""T5: the first block's position bias serves every block, whoever lost heads."""

from __future__ import annotations

import pytest

import headcount as hc
from tests.tiny import Family, build, difference, families, run

CLOSE = 1e-5


@pytest.mark.parametrize("block", ["encoder.0", "encoder.1", "decoder.0", "decoder.1", "cross.0"])
@pytest.mark.parametrize("left", [0, 1, 3])
@families("t5", "mt5")
def test_a_block_may_lose_heads_alone(family: Family, block: str, left: int) -> None:
    model, inputs = build(family), family.inputs()
    heads = hc.find_heads(model)
    gone = heads.block(block).indices[: 4 - left]
    mask = hc.HeadMask.from_indices(heads, set(heads.indices) - set(gone))
    assert mask.counts()[block] == left
    with hc.masked(model, mask):
        closed = run(model, inputs)
    hc.remove_heads(model, mask)
    assert difference(run(model, inputs), closed) < CLOSE


@families("t5", "mt5")
def test_the_bias_keeps_a_column_for_every_head_of_the_later_blocks(family: Family) -> None:
    model = build(family)
    hc.remove_heads(model, hc.HeadMask.random(hc.find_heads(model), keep=4))
    for stack in (model.encoder, model.decoder):
        assert stack.block[0].layer[0].SelfAttention.relative_attention_bias.weight.shape[1] == 4
