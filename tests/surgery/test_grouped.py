"""Grouped queries: a key-value head leaves with its last query, also from the cache."""

from __future__ import annotations

import torch

import headcount as hc
from tests.tiny import Family, build, difference, families, mask_for, masks, run

CLOSE = 1e-5
# Keep of each block: both queries of one group; one of each; two of one and one of the other.
KEPT = {"decoder.0": (0, 1), "decoder.1": (0, 3), "decoder.2": (0, 1, 3)}


def three_ways_to_lose_queries(heads: hc.HeadMap) -> hc.HeadMask:
    return hc.HeadMask.from_names(
        heads, (f"{block}.{head}" for block, kept in KEPT.items() for head in kept)
    )


@families(is_grouped=True)
def test_a_key_value_head_leaves_with_its_last_query(family: Family) -> None:
    model = build(family)
    hc.remove_heads(model, three_ways_to_lose_queries(hc.find_heads(model)))
    blocks = hc.find_heads(model).blocks
    assert [block.num_key_value_heads for block in blocks] == [1, 2, 2]
    assert [block.key_value_groups for block in blocks] == [((0, 1),), ((0,), (3,)), ((0, 1), (3,))]


@families(is_grouped=True)
def test_uneven_groups_equal_the_masked_model(family: Family) -> None:
    model, inputs = build(family), family.inputs()
    mask = three_ways_to_lose_queries(hc.find_heads(model))
    with hc.masked(model, mask):
        closed = run(model, inputs)
    hc.remove_heads(model, mask)
    assert difference(run(model, inputs), closed) < CLOSE


@masks("half", "uneven", "three_heads_each")
@families(is_grouped=True)
def test_the_cache_holds_the_key_value_heads_that_are_left(family: Family, mask_name: str) -> None:
    model = build(family)
    hc.remove_heads(model, mask_for(model, mask_name))
    with torch.no_grad():
        cache = model(**family.inputs(), use_cache=True).past_key_values
    for block, layer in zip(hc.find_heads(model).blocks, cache.layers, strict=True):
        if block.heads:
            assert layer.keys.shape[1] == layer.values.shape[1] == block.num_key_value_heads


@families(is_grouped=True)
def test_groups_that_become_even_again_need_no_help(family: Family) -> None:
    """Uneven after the first removal, even after the second."""
    model, inputs = build(family), family.inputs()
    mask = hc.HeadMask.from_indices(
        hc.find_heads(model), (b.offset + h for b in hc.find_heads(model).blocks for h in (0, 2))
    )
    with hc.masked(model, mask):
        closed = run(model, inputs)
    hc.remove_heads(model, mask_for(model, "three_heads_each"))
    hc.remove_heads(model, mask)
    assert difference(run(model, inputs), closed) < CLOSE
