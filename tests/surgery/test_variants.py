"""One class, several layouts: what a configuration switches must not be cut wrongly."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import transformers

import headcount as hc

VARIANTS: list[tuple[str, str, dict[str, Any]]] = [
    (
        "GPTBigCodeForCausalLM",
        "GPTBigCodeConfig",
        {"n_positions": 64, "n_embd": 32, "n_layer": 2, "n_head": 4, "multi_query": multi_query},
    )
    for multi_query in (True, False)
]


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize(("name", "config", "settings"), VARIANTS, ids=str)
def test_every_layout_of_a_class_is_cut_as_it_is_masked(
    name: str, config: str, settings: dict[str, Any], implementation: str
) -> None:
    torch.manual_seed(0)
    made = getattr(transformers, config)(vocab_size=99, **settings)
    model = getattr(transformers, name)(made).eval()
    model.set_attn_implementation(implementation)
    heads = hc.find_heads(model)
    ids = torch.arange(12).view(2, 6)
    masks = [hc.HeadMask.random(heads, keep=k, seed=s) for k in (1, 3, 4, 6) for s in (0, 1)]
    masks.append(hc.HeadMask.from_indices(heads, heads.blocks[1].indices))
    for mask in masks:
        small = copy.deepcopy(model)
        with torch.no_grad(), hc.masked(model, mask):
            expected = model(ids).logits
        hc.remove_heads(small, mask)
        with torch.no_grad():
            found = small(ids).logits
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
