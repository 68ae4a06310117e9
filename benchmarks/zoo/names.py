"""How big a configuration attribute may be, decided by its name."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

HEADS = 4
HEAD_DIM = 8
HIDDEN = HEADS * HEAD_DIM
INTERMEDIATE = 64
VOCAB = 99
POSITIONS = 128
PATCH = 8
IMAGE = 4 * PATCH

MISSING = object()

# Attributes that some classes leave at `None` although the model cannot be built or used so.
REQUIRED: dict[str, Any] = {
    "pad_token_id": 0,
    "vocab_size": VOCAB,
    "head_dim": HEAD_DIM,
    "num_key_value_heads": HEADS,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_shared_experts": 1,
    "image_token_id": 60,
    "image_token_index": 60,
    "audio_token_id": 57,
}

Rule = Callable[[int], int]


def at_most(limit: int) -> Rule:
    """A rule that lowers a number to `limit`, and leaves smaller numbers alone."""
    return lambda value: min(value, limit)


def exactly(number: int) -> Rule:
    """A rule for attributes that other attributes have to agree with, whatever the default was."""
    return lambda value: number if value > 1 else value


def channels(value: int) -> int:
    """Shrinks a number of channels, mapping equal inputs to equal outputs.

    Convolutional backbones repeat the same number in the configurations of several sub-models,
    so a fixed function keeps them consistent without knowing which numbers belong together.
    """
    if value <= HIDDEN:
        return value
    return HIDDEN if value <= 512 else value // 256 * 16


KEY_VALUE_HEADS = r".*(key_value_heads|kv_heads|num_kv|kv_n_heads|query_groups|n_head_kv)(_.*)?"

# The first pattern that matches the whole attribute name decides. Each rule is applied to an
# integer, or to every integer of a list.
RULES: tuple[tuple[str, Rule], ...] = (
    (
        r"spec_size|model_in_dim|keypoint_decoder_dim|.*pos_emb_(height|width|time)",
        lambda value: value,
    ),
    (r"window_size_per_stage", at_most(2)),
    (r"type_vocab_size|.*num_labels|num_classes", at_most(8)),
    (r".*vocab_size.*|.*vocabulary_size|n_words", at_most(VOCAB)),
    (
        r".*(kernel|stride|dilation|padding|window_layers|buckets|num_bins|ratio|factor).*",
        lambda value: value,
    ),
    (r"mamba_n_heads|mamba_num_heads", exactly(2 * HEADS)),
    (r"n_groups|mamba_n_groups|mamba_ngroups", at_most(2)),
    (KEY_VALUE_HEADS, at_most(HEADS)),
    (r".*(_heads|n_heads?|num_heads)(_per_stage)?|attention_heads", exactly(HEADS)),
    (
        r"(.*_)?(head_dim|head_size|d_kv|kv_channels|d_head|dim_head|head_features)",
        at_most(HEAD_DIM),
    ),
    (r"rotary_dim", at_most(HEAD_DIM // 2)),
    (
        r".*(intermediate|ffn|feed_?forward|d_ff|d_inner|n_inner|mlp_dim|linear_units|"
        r"_inner_dim).*",
        at_most(INTERMEDIATE),
    ),
    (r".*lora.*|.*_rank|.*_rank_.*", at_most(16)),
    (
        r".*(experts_per_tok|topk_group|top_k_experts|moe_top_?k|experts_per_token|moe_k)|"
        r"top_k",
        at_most(2),
    ),
    (r"n_group|num_expert_group|.*num_expert_groups", at_most(2)),
    (r".*(shared_experts|experts_shared).*", at_most(1)),
    (r".*experts.*|.*expert_num.*", at_most(4)),
    (r"num_feat_extract_layers|num_nextn_predict_layers|num_conv_layers", lambda value: value),
    (
        r".*num_queries|num_query_tokens|num_latents|.*n_latents|.*latent_query_num|"
        r".*num_image_tokens",
        at_most(8),
    ),
    (r"num_pos_feats", at_most(HIDDEN // 2)),
    (r"mm_tokens_per_image", at_most(4)),
    (r".*upsample_groups", exactly(HIDDEN)),
    (
        r"(.*_)?(layers|n_layers?|num_layers|depth|num_blocks|resampler_depth|"
        r"encoder_depth)",
        at_most(2),
    ),
    (r"depths|blocks_per_stage|stage_num_blocks|layers_per_stage", at_most(2)),
    (r"patch_size|.*_patch_size", lambda value: value),
    (r"(sliding_window|attention_window|local_attention|.*window_size)(_size)?", at_most(8)),
    (
        r".*(positions?|position_embeddings|n_ctx|seq_len.*|max_length|context_length|"
        r"block_size|max_pos_emb|seq_length)",
        at_most(POSITIONS),
    ),
    (r".*(state_size|d_state)", at_most(8)),
    (r"num_filters|n_filters", at_most(4)),
    (r"num_embeddings", at_most(64)),
    (
        r".*(hidden_size|hidden_dim|d_model|embed_dim|n_embd|emb_dim|projection_dim|"
        r"proj_dim|embedding_dim|embedding_size|projector_dim|out_dim|output_dim|"
        r"hidden_channels|dimension|condition_dim)",
        at_most(HIDDEN),
    ),
    (r".*(channels?|hidden_sizes|dims?|_size|sizes|width|units|features|filters)(_.*)?", channels),
)

DROPOUT = re.compile(
    r".*(drop_?out|drop_?path|drop_rate|pdrop|layer_?drop|drop_prob|jitter|drop_connect).*"
)
TOKEN_ID = re.compile(
    r".*token(_id|_index|_ids|_idx)|(pad|bos|eos|mask|cls|sep|unk|image|audio|video)_(idx|index|id)"
)
LAYER_COUNT = re.compile(
    r"num_hidden_layers|num_layers|n_layers?|decoder_layers|depth|num_decoder_layers"
)
HEAD_COUNT = r"num_attention_heads|n_heads?|num_heads|decoder_attention_heads"
LAYER_INDICES = (
    r".*(block_indexes|visual_indexes|attn_indexes|mlp_only_layers|full_attn_idxs|block_indices|"
    r"cross_attention_layers)"
)
IMAGE_SIZE = re.compile(r"(.*_)?(image_size|img_size|input_size)")

# Attributes with a single sensible tiny value, which follows from the image and patch sizes.
FIXED: dict[str, Any] = {
    "backbone_feature_sizes": [[16, 16], [8, 8], [4, 4]],
    "image_grid_pinpoints": [[IMAGE, IMAGE]],
}
