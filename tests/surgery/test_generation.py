"""A pruned model writes what the masked model writes, with and without a cache."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import PreTrainedModel

import headcount as hc
from tests.tiny import Family, build, difference, families, floats, mask_for, masks

CLOSE = 1e-4  # rounding adds up from token to token
NEW_TOKENS = 6

searches = pytest.mark.parametrize("beams", [1, 3], ids=["greedy", "beams"])
caches = pytest.mark.parametrize("use_cache", [True, False], ids=["cache", "no_cache"])


def write(model: PreTrainedModel, family: Family, **settings: Any) -> Any:
    """Generate exactly six tokens."""
    return model.generate(
        **family.prompt(),
        do_sample=False,
        min_new_tokens=NEW_TOKENS,
        max_new_tokens=NEW_TOKENS,
        return_dict_in_generate=True,
        output_logits=True,
        **settings,
    )


def assert_writes_the_same(family: Family, mask_name: str, **settings: Any) -> None:
    whole, model = build(family), build(family)
    mask = mask_for(model, mask_name)
    with hc.masked(whole, mask):
        closed = write(whole, family, **settings)
    hc.remove_heads(model, mask)
    removed = write(model, family, **settings)
    assert len(closed.logits) == NEW_TOKENS
    assert torch.equal(removed.sequences, closed.sequences)
    assert difference(floats({"logits": removed.logits}), floats({"logits": closed.logits})) < CLOSE


@caches
@searches
@masks("half", "empty_first_decoder_block", "empty_every_block")
@families(generates=True)
def test_removed_model_writes_what_the_masked_model_writes(
    family: Family, mask_name: str, beams: int, use_cache: bool
) -> None:
    assert_writes_the_same(family, mask_name, num_beams=beams, use_cache=use_cache)


@searches
@families(is_grouped=True)
def test_uneven_groups_write_what_the_masked_model_writes(family: Family, beams: int) -> None:
    assert_writes_the_same(family, "three_heads_each", num_beams=beams)


@masks("half", "three_heads_each", "empty_first_decoder_block", "empty_every_block")
@families("gpt2", "llama", "qwen3", "gemma2", "gemma3", "t5", "bart")
def test_a_static_cache_holds_a_pruned_model(family: Family, mask_name: str) -> None:
    assert_writes_the_same(family, mask_name, cache_implementation="static")


@families("gpt2", "llama", "t5")
def test_a_static_cache_of_the_whole_model_is_not_used_again(family: Family) -> None:
    model = build(family)
    write(model, family, cache_implementation="static")
    hc.remove_heads(model, mask_for(model, "half"))
    static = write(model, family, cache_implementation="static")
    assert torch.equal(static.sequences, write(model, family).sequences)


@masks("half", "empty_first_decoder_block")
@families(generates=True)
def test_a_cache_does_not_change_what_a_pruned_model_writes(family: Family, mask_name: str) -> None:
    model = build(family)
    hc.remove_heads(model, mask_for(model, mask_name))
    cached, fresh = (write(model, family, use_cache=use_cache) for use_cache in (True, False))
    assert torch.equal(cached.sequences, fresh.sequences)
