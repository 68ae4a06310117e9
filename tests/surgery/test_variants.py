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


def test_masks_that_are_repeated_for_every_head_are_cut_with_the_heads() -> None:
    swin = transformers.SwinConfig(
        window_size=7, embed_dim=8, depths=[1] * 4, num_heads=[1] * 4, image_size=98,
        out_indices=[2, 3, 4],
    )  # fmt: skip
    text = {
        "model_type": "bert", "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
        "intermediate_size": 8, "max_position_embeddings": 8,
    }  # fmt: skip
    for family in ("GroundingDino", "MMGroundingDino"):
        torch.manual_seed(0)
        config = getattr(transformers, f"{family}Config")(
            d_model=32, encoder_layers=1, decoder_layers=1, encoder_attention_heads=4,
            decoder_attention_heads=4, encoder_ffn_dim=4, decoder_ffn_dim=4, num_queries=2,
            num_feature_levels=4, encoder_n_points=2, decoder_n_points=2, use_timm_backbone=False,
            backbone_config=swin, max_text_len=5, text_config=text,
        )  # fmt: skip
        model = getattr(transformers, f"{family}Model")(config).eval()
        inputs = {
            "pixel_values": torch.rand(2, 3, 98, 98),
            "pixel_mask": torch.ones(2, 98, 98, dtype=torch.long),
            "input_ids": torch.tensor([[1, 2, 1, 0, 2]] * 2),
        }
        heads = hc.find_heads(model)
        for seed, keep in ((1, len(heads) // 2), (3, 1)):
            mask, small = hc.HeadMask.random(heads, keep, seed=seed), copy.deepcopy(model)
            with torch.no_grad(), hc.masked(model, mask):
                expected = model(**inputs).last_hidden_state
            hc.remove_heads(small, mask)
            with torch.no_grad():
                found = small(**inputs).last_hidden_state
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


def test_stacks_that_share_a_cache_are_refused() -> None:
    model = torch.nn.Linear(2, 2)
    model.config = transformers.PretrainedConfig()  # type: ignore[assignment]
    model.config.model_type = "pi0"  # type: ignore[union-attr]
    with pytest.raises(hc.HeadcountError, match="its two stacks share one cache"):
        hc.find_heads(model)


def test_a_width_that_the_code_insists_on_is_given_to_it() -> None:
    torch.manual_seed(0)
    config = transformers.EfficientLoFTRConfig(
        stage_num_blocks=[1] * 3, stage_stride=[2, 1, 2], out_features=[32, 32, 64],
        q_aggregation_kernel_size=1, kv_aggregation_kernel_size=1, q_aggregation_stride=1,
        kv_aggregation_stride=1, num_attention_layers=2, num_attention_heads=8, hidden_size=64,
    )  # fmt: skip
    model, images = transformers.EfficientLoFTRModel(config).eval(), torch.rand(1, 2, 3, 60, 80)
    heads = hc.find_heads(model)
    for keep, seed in ((16, 1), (1, 3)):
        mask, small = hc.HeadMask.random(heads, keep, seed=seed), copy.deepcopy(model)
        with torch.no_grad(), hc.masked(model, mask):
            expected = model(images).feature_maps
        hc.remove_heads(small, mask)
        with torch.no_grad():
            found = small(images).feature_maps
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=1e-5)
