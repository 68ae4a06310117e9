"""What the name of an attribute does not tell: settings of single model types and classes."""

from __future__ import annotations

from typing import Any

from zoo.names import (
    HEAD_DIM,
    HEADS,
    HIDDEN,
    PATCH,
)

# What the names alone cannot tell, by `model_type` of the (sub-)configuration, or by the name of
# its class where it has no type.
OVERRIDES: dict[str, dict[str, Any]] = {
    "align": {"projection_dim": 64},
    "align_vision_model": {"hidden_dim": 2560},
    "aria": {"projector_patch_to_query_dict": {16: 4}},
    "autoformer": {"prediction_length": 4, "context_length": 16, "label_length": 8},
    "bamba": {"attn_layer_indices": [1]},
    "bit": {"num_groups": 4},
    "blip_2_qformer": {"use_qformer_text_input": True},
    "blt": {"encoder_hash_byte_group_vocab": 50, "num_hidden_layers": 2},
    "bridgetower": {"hidden_size": 128},
    "bridgetower_text_model": {"hidden_size": 128},
    "bridgetower_vision_model": {"hidden_size": 128},
    "bros": {"hidden_size": 64},
    "chameleon": {
        "vocabulary_map": {"<image>": 60} | {f"IMGIMG{chr(65 + i)}Z": 70 + i for i in range(8)}
    },
    "chameleon_vqgan": {"num_embeddings": 8},
    "cohere_compass_text": {
        "rope_parameters": {
            "full_attention": {
                "rope_type": "default",
                "rope_theta": 1e4,
                "mrope_section": [2, 1, 1],
            },
            "sliding_attention": {
                "rope_type": "default",
                "rope_theta": 1e4,
                "mrope_section": [2, 1, 1],
            },
        }
    },
    "cvt": {"depth": [1, 2, 3]},
    "dac": {"encoder_hidden_size": 8, "decoder_hidden_size": 64, "hidden_size": 128},
    "DbrxAttentionConfig": {"rope_theta": 1e4, "clip_qkv": 8.0},
    "deepseek_ocr2_text": {"mlp_layer_types": ["dense", "sparse"]},
    "diffusion_gemma_text": {
        "num_experts": 4,
        "top_k_experts": 2,
        "moe_intermediate_size": 16,
        "global_head_dim": 16,
    },
    "dpt": {"num_hidden_layers": 4, "backbone_out_indices": [0, 1, 2, 3]},
    "efficientnet": {"hidden_dim": 2560},
    "embedding_gemma2_text": {"global_head_dim": 16},
    "emu3": {
        "vocabulary_map": {"<image>": 60, "<|extra_200|>": 61}
        | {f"<|visual token {i:06d}|>": 70 + i for i in range(8)}
    },
    "emu3_vqgan": {"codebook_size": 8},
    "ernie4_5_vl_moe_text": {
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 1, 2]}
    },
    "falcon_h1": {"mamba_d_ssm": 64, "mamba_n_heads": 8, "mamba_d_head": 8},
    "gemma3n_text": {"num_kv_shared_layers": 0},
    "gemma4_text": {"global_head_dim": 16},
    "gemma4_unified_text": {"global_head_dim": 16},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "granitemoehybrid": {"layer_types": ["mamba", "attention"]},
    "hiera": {"decoder_hidden_size": HIDDEN, "decoder_depth": 1, "decoder_num_heads": HEADS},
    "informer": {"prediction_length": 4, "context_length": 8},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "layoutlmv3": {"coordinate_size": 4, "shape_size": 8},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"]},
    "lilt": {"hidden_size": 48},
    "llama4_vision_model": {
        "intermediate_size": 128,
        "vision_output_dim": 32,
        "projector_input_dim": 32,
        "projector_output_dim": 32,
    },
    "lw_detr_vit": {"image_size": 64},
    "mamba2": {"num_heads": 8},
    "mllama_vision_model": {
        "intermediate_layers_indices": [0, 1],
        "vision_output_dim": 3 * HIDDEN,
        "num_global_layers": 2,
    },
    "mobilebert": {"embedding_size": 16, "intra_bottleneck_size": 32, "true_hidden_size": 32},
    "molmo2_adapter": {"vision_feature_layer": [1, 0]},
    "mobilevit": {"image_size": 128},
    "moonshine_streaming": {"num_key_value_heads": HEADS},
    "neomme": {"head_dim": 16, "hidden_size": 64},
    "paddleocr_vl_text": {
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 1, 1]}
    },
    "perceiver": {"d_latents": 32, "d_model": 32, "num_self_attends_per_block": 2},
    "pix2struct_vision_model": {"patch_size": PATCH, "patch_embed_hidden_size": 3 * PATCH * PATCH},
    "qwen2_5_omni_thinker": {
        "vision_start_token_id": 61,
        "vision_end_token_id": 62,
        "audio_start_token_id": 63,
    },
    "qwen3_omni_moe_thinker": {
        "vision_start_token_id": 61,
        "vision_end_token_id": 62,
        "audio_start_token_id": 63,
    },
    "qwen4_exp_text": {
        "indexer_compress_ratio": 2,
        "indexer_budget": 8,
        "indexer_kv_heads": 1,
        "indexer_n_heads": HEADS,
        "indexer_head_dim": HEAD_DIM,
    },
    "reformer": {
        "axial_pos_embds": False,
        "attn_layers": ["local", "lsh"],
        "local_attn_chunk_length": 4,
        "lsh_attn_chunk_length": 4,
    },
    "sam2_hiera_det_model": {"embed_dim_per_stage": [32, 64, 96, 128]},
    "sam2_vision_model": {"backbone_channel_list": [128, 96, 64, 32]},
    "shieldgemma2": {"yes_token_index": 7, "no_token_index": 8},
    "step3p5": {"sliding_window": 8},
    "superpoint": {"keypoint_decoder_dim": 65},
    "t5gemma2_text": {"dropout_rate": 0.0},
    "time_series_transformer": {"prediction_length": 4, "context_length": 8},
    "vipllava": {"vision_feature_layers": [-2, -1, 0, 1, 2]},
    "xlstm": {"qk_dim_factor": 1.0},
    "xmod": {"default_language": "en_XX"},
    "zamba": {
        "num_hidden_layers": 4,
        "layers_block_type": ["linear_attention", "hybrid", "linear_attention", "hybrid"],
    },
}

# The same, by name of the model class, for classes that need another mode of their configuration.
CLASS_OVERRIDES: dict[str, dict[str, Any]] = {
    "BeitForSemanticSegmentation": {"num_hidden_layers": 4, "out_indices": [1, 2, 3, 4]},
    "Data2VecVisionForSemanticSegmentation": {"num_hidden_layers": 4, "out_indices": [2, 3, 4, 5]},
    "DetrForSegmentation": {"encoder_attention_heads": 8, "decoder_attention_heads": 8},
    "ReformerModelWithLMHead": {"is_decoder": True},
    "T5GemmaEncoderModel": {"is_encoder_decoder": False},
}
