"""One class, several layouts: what a configuration switches must not be cut wrongly."""

from __future__ import annotations

import copy
import inspect
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


def of(name: str) -> Any:
    """A class of transformers, where the installed version has it."""
    if not hasattr(transformers, name):
        pytest.skip(f"this version of transformers has no {name}")
    return getattr(transformers, name)


def test_layers_whose_keys_and_values_others_use_are_left_alone() -> None:
    torch.manual_seed(0)
    config = transformers.Gemma3nTextConfig(
        vocab_size=99, vocab_size_per_layer_input=99, hidden_size=32, intermediate_size=32,
        num_attention_heads=4, num_key_value_heads=2, head_dim=8, hidden_size_per_layer_input=8,
        num_hidden_layers=6, layer_types=["sliding_attention", "full_attention"] * 3,
        num_kv_shared_layers=2, sliding_window=4, laurel_rank=4,
    )  # fmt: skip
    model = transformers.Gemma3nForCausalLM(config).eval()
    heads = hc.find_heads(model)
    assert [block.layer for block in heads.blocks] == [0, 1]
    why = {module.path: module.reason for module in heads.left_alone}
    assert sorted(why) == [f"model.layers.{layer}.self_attn" for layer in (2, 3, 4, 5)]
    for layer in (2, 3):
        assert why[f"model.layers.{layer}.self_attn"] == "later layers use its keys and values"
    ids = torch.arange(12).view(2, 6)
    for seed in range(4):
        mask, small = hc.HeadMask.random(heads, keep=3, seed=seed), copy.deepcopy(model)
        with torch.no_grad(), hc.masked(model, mask):
            expected = model(ids).logits
        hc.remove_heads(small, mask)
        with torch.no_grad():
            torch.testing.assert_close(small(ids).logits, expected, rtol=0, atol=1e-5)


def test_a_decoder_whose_two_attentions_share_a_cache_is_refused() -> None:
    config = transformers.BigBirdConfig(
        vocab_size=99, hidden_size=32, num_hidden_layers=1, num_attention_heads=4,
        intermediate_size=32, attention_type="original_full", is_decoder=True,
        add_cross_attention=True,
    )  # fmt: skip
    with pytest.raises(hc.HeadcountError, match="from the cache of its self-attention"):
        hc.find_heads(transformers.BigBirdModel(config))


def test_a_bias_that_the_encoder_makes_for_all_layers_is_cut_with_the_heads() -> None:
    torch.manual_seed(0)
    for implementation in ("eager", "sdpa"):
        config = transformers.Data2VecVisionConfig(
            hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=32,
            image_size=32, patch_size=16, use_shared_relative_position_bias=True,
            layer_scale_init_value=1.0, attn_implementation=implementation,
        )  # fmt: skip
        model = transformers.Data2VecVisionModel(config).eval()
        images = {"pixel_values": torch.randn(2, 3, 32, 32)}
        assert_cut_as_masked(model, images, ["last_hidden_state"])


def test_prompts_with_keys_of_every_head_are_cut_with_the_heads() -> None:
    torch.manual_seed(0)
    config = transformers.MvpConfig(
        vocab_size=99, d_model=32, encoder_layers=1, decoder_layers=1, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=32, decoder_ffn_dim=32, use_prompt=True,
        prompt_length=5, prompt_mid_dim=16, max_position_embeddings=64,
    )  # fmt: skip
    model = transformers.MvpModel(config).eval()
    ids = torch.arange(12).view(2, 6)
    heads = hc.find_heads(model)
    for keep, seed in ((6, 0), (6, 1), (1, 2), (0, 0)):
        mask, small = hc.HeadMask.random(heads, keep, seed=seed), copy.deepcopy(model)
        with torch.no_grad(), hc.masked(model, mask):
            expected = model(ids, decoder_input_ids=ids).last_hidden_state
        hc.remove_heads(small, mask)
        with torch.no_grad():
            found = small(ids, decoder_input_ids=ids).last_hidden_state
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


def test_stacks_that_share_a_cache_are_refused() -> None:
    text = {
        "model_type": "gemma", "hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 32,
        "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 8, "vocab_size": 99,
    }  # fmt: skip
    vision = {
        "model_type": "siglip_vision_model", "hidden_size": 32, "intermediate_size": 32,
        "num_hidden_layers": 1, "num_attention_heads": 4, "image_size": 28, "patch_size": 14,
    }  # fmt: skip
    vlm = {
        "model_type": "paligemma", "text_config": text, "vision_config": vision,
        "projection_dim": 32, "image_token_id": 98,
    }  # fmt: skip
    model = of("PI0ForConditionalGeneration")(of("PI0Config")(vlm_config=vlm, dit_config=text))
    with pytest.raises(hc.HeadcountError, match="its two stacks share one cache"):
        hc.find_heads(model)


def assert_cut_as_masked(model: Any, inputs: dict[str, torch.Tensor], outputs: list[str]) -> None:
    """Half of the heads, one head, and every block emptied in turn.

    The weights are drawn anew, because small ones, as models start with, would hide single heads;
    in double precision, because a few outputs are large.
    """
    model.double()
    inputs = {name: tensor.double() for name, tensor in inputs.items()}
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=min(0.2, 1.4 / parameter[0].numel() ** 0.5))
    heads = hc.find_heads(model)
    masks = [hc.HeadMask.random(heads, keep, seed=1) for keep in (len(heads) // 2, 1)]
    masks += [
        hc.HeadMask.all(heads) - hc.HeadMask.from_indices(heads, block.indices)
        for block in heads.blocks
    ]
    unseen = set(outputs)
    with torch.no_grad():
        whole = model(**inputs)
        for mask in masks:
            small = copy.deepcopy(model)
            with hc.masked(model, mask):
                expected = model(**inputs)
            hc.remove_heads(small, mask)
            found = small(**inputs)
            for name in outputs:
                torch.testing.assert_close(found[name], expected[name], rtol=0, atol=1e-9)
            unseen -= {n for n in outputs if not torch.equal(expected[n], whole[n])}
    assert not unseen, f"no mask changed {unseen}"


def test_rotations_that_the_code_makes_for_every_head_are_cut_with_the_heads() -> None:
    torch.manual_seed(0)
    semantic = {
        "model_type": "wav2vec2-bert", "hidden_size": 32, "num_hidden_layers": 17,
        "num_attention_heads": 4, "intermediate_size": 32, "feature_projection_input_dim": 160,
        "output_hidden_size": 32,
    }  # fmt: skip
    config = of("Xcodec2Config")(
        encoder_hidden_size=8, downsampling_ratios=(2, 2, 4), hidden_size=32, head_dim=8,
        num_attention_heads=4, num_key_value_heads=4, num_hidden_layers=2, quantization_dim=64,
        quantization_levels=(4, 4, 4, 4), semantic_model_config=semantic,
    )  # fmt: skip
    model = of("Xcodec2Model")(config).eval()
    names = list(inspect.signature(model.forward).parameters)[:2]  # they were renamed once
    shapes = ((1, 1, 16 * 20), (1, 20, 160))
    inputs = {n: torch.randn(shape) for n, shape in zip(names, shapes, strict=True)}
    assert_cut_as_masked(model, inputs, ["audio_values"])


def test_biases_of_distance_beside_a_detector_are_cut_with_the_heads() -> None:
    torch.manual_seed(0)
    stages = ("hidden_sizes", "stage_in_channels", "stage_mid_channels", "stage_out_channels")
    backbone = {
        "model_type": "hgnet_v2", "stem_channels": [3, 32, 32],
        "out_features": ["stage2", "stage3", "stage4"], **{name: [32] * 4 for name in stages},
    }  # fmt: skip
    order = {
        "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 32,
        "num_hidden_layers": 2, "coordinate_size": 8, "shape_size": 8, "relative_head_size": 16,
        "rel_2d_pos_bins": 16,
    }  # fmt: skip
    config = of("PPDocLayoutV2Config")(
        backbone_config=backbone, reading_order_config=order, encoder_hidden_dim=32,
        encoder_in_channels=[32] * 3, decoder_in_channels=[32] * 3, d_model=32, num_queries=12,
        encoder_ffn_dim=16, decoder_ffn_dim=16, encoder_attention_heads=4, decoder_layers=1,
        decoder_attention_heads=4, num_denoising=0, image_size=64, anchor_image_size=None,
        eval_size=None, id2label={i: str(i) for i in range(25)}, class_thresholds=[0.0] * 25,
        class_order=[i % 16 for i in range(25)],
    )  # fmt: skip
    model = of("PPDocLayoutV2ForObjectDetection")(config).eval()
    inputs = {"pixel_values": torch.randn(1, 3, 64, 64)}
    assert_cut_as_masked(model, inputs, ["last_hidden_state", "order_logits"])


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
