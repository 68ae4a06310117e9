"""Models that change under a pruned model's feet: another attention module, or a second removal."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    BigBirdConfig,
    BigBirdForMaskedLM,
    PreTrainedModel,
    Swinv2Config,
    Swinv2ForImageClassification,
)

from headcount import HeadMask, find_heads, masked, remove_heads

SHORT, LONG = 12, 64


def big_bird() -> BigBirdForMaskedLM:
    torch.manual_seed(0)
    config = BigBirdConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=16, block_size=4, num_random_blocks=1, max_position_embeddings=LONG,
        initializer_range=0.3,
    )  # fmt: skip
    return BigBirdForMaskedLM(config).eval()


def answer(model: PreTrainedModel, **inputs: Tensor) -> Tensor:
    model.eval()
    with torch.no_grad():
        return model(**inputs).logits


@pytest.mark.parametrize("kept", [(0, 1, 5), (4, 5, 6)], ids=["some", "an empty layer"])
@pytest.mark.parametrize("lengths", [(SHORT,), (LONG, SHORT)], ids=["short", "long then short"])
def test_big_bird_may_switch_after_the_cut(
    kept: tuple[int, ...], lengths: tuple[int, ...], tmp_path: Path
) -> None:
    """It leaves sparse attention at the first input that is too short for it."""
    whole, small = big_bird(), big_bird()
    mask = HeadMask.from_indices(find_heads(whole), kept)
    remove_heads(small, mask)
    small.save_pretrained(tmp_path)
    again = BigBirdForMaskedLM.from_pretrained(tmp_path)
    for length in lengths:
        ids = torch.randint(5, 50, (2, length), generator=torch.Generator().manual_seed(length))
        open_ = answer(copy.deepcopy(whole), input_ids=ids)
        with masked(whole, mask):
            expected = answer(whole, input_ids=ids)
        assert (expected - open_).abs().max() > 1e-3
        for model in (small, again):
            assert (answer(model, input_ids=ids) - expected).abs().max() < 1e-5
    assert find_heads(small).indices == kept


def test_a_padded_block_may_lose_its_last_head_later() -> None:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"depths": [1, 1], "num_heads": [2, 4], "window_size": 2}
    config = Swinv2Config(
        image_size=16, patch_size=2, embed_dim=8, initializer_range=0.3, **sizes
    )  # fmt: skip
    whole = Swinv2ForImageClassification(config)
    small = copy.deepcopy(whole)
    image = torch.randn(2, 3, 16, 16)
    heads = find_heads(whole)
    last = HeadMask.from_indices(heads, [2])
    remove_heads(small, HeadMask.from_indices(heads, [0, 2, 3]))
    remove_heads(small, last)
    with masked(whole, last):
        expected = answer(whole, pixel_values=image)
    assert (answer(whole, pixel_values=image) - expected).abs().max() > 1e-3
    assert (answer(small, pixel_values=image) - expected).abs().max() < 1e-5
