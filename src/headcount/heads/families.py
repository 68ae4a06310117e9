"""The names that model families use for q, k, v, o and their counts. Only this file knows them.

These names and the shapes are enough to recognise most families. A new model with the usual names
needs nothing here. A family that needs more has a row in `FAMILIES`.
"""

from __future__ import annotations

from dataclasses import dataclass

from headcount.heads.anatomy import AfterProjection, HeadArgument

QUERY = (
    "q_proj", "query", "q_lin", "q", "query_proj", "linear_q", "project_q", "Wq", "q_linear",
    "queries", "wq", "to_q", "q_attn", "q_b_proj", "q_head",
)  # fmt: skip
KEY = (
    "k_proj", "key", "k_lin", "k", "key_proj", "linear_k", "project_k", "Wk", "k_linear", "keys",
    "wk", "to_k", "k_head",
)  # fmt: skip
VALUE = (
    "v_proj", "value", "v_lin", "v", "value_proj", "linear_v", "project_v", "Wv", "v_linear",
    "values", "wv", "to_v", "v_head",
)  # fmt: skip
OUTPUT = (
    "o_proj", "out_proj", "out_lin", "o", "dense", "c_proj", "proj", "projection", "Wo",
    "linear_out", "output_proj", "projection_layer", "attention_out", "to_out", "linear_o",
    "output", "wo", "post_proj",
)  # fmt: skip
# Paths of the output projection from the module around the attention module (BERT).
OUTPUT_NEXT_DOOR = ("output.dense", "output", "dense", "out_proj", "proj")

# q, k and v in one projection: all queries, then all keys, then all values …
STACKED = ("qkv", "qkv_proj", "Wqkv", "c_attn", "att_proj")
# … or the query, key and value of head 0, then those of head 1, and so on.
INTERLEAVED = ("query_key_value",)
# Multi-head latent attention: one latent vector unfolds into the keys and values of all heads.
LATENT = ("kv_b_proj",)
LATENT_NEIGHBOURS = (
    "q_a_proj", "q_a_layernorm", "kv_a_proj_with_mqa", "kv_a_layernorm", "indexer",
)  # fmt: skip
# Keys and values in one projection, next to a query projection.
STACKED_KEY_VALUE = ("c_attn", "kv", "to_kv", "kv_proj")

HEAD_COUNTS = ("num_heads", "num_attention_heads", "n_heads", "n_head", "num_attn_heads", "heads")
HEAD_SIZES = (
    "head_dim", "attention_head_size", "key_value_proj_dim", "head_size", "dim_per_head",
    "size_per_head", "attn_head_size", "dim_head",
)  # fmt: skip
KEY_VALUE_COUNTS = ("num_key_value_heads", "num_kv_heads", "n_kv_heads", "kv_heads")
GROUP_SIZES = ("num_key_value_groups", "n_rep", "num_kv_groups")
# Widths that a forward pass may use to join the heads again.
WIDTHS = (
    "all_head_size", "inner_dim", "embed_dim", "hidden_size", "d_model", "dim", "split_size",
    "n_embd", "query_size", "internal_dim", "dim_attn", "embedding_size", "head_size",
    "hidden_size_output",
)  # fmt: skip
QUERY_WIDTHS = ("q_dim",)
KEY_VALUE_WIDTHS = ("kv_dim",)

# Tensors with values per head besides q, k, v and o: rows per head, or columns per head.
ROWS_PER_HEAD = (
    "sinks", "gate_proj", "g_proj", "pos_key_proj", "pos_query_proj", "pos_proj", "pos_q_proj",
    "linear_pos", "pos_bias_u", "pos_bias_v", "relative_k_proj", "bias_u", "bias_v", "logit_scale",
    "linear_g",
)  # fmt: skip
COLUMNS_PER_HEAD = ("relative_position_bias_table",)
# Tensors that all heads share; their last dimension is the head size.
SHARED_BY_HEADS = (
    "rel_pos_h", "rel_pos_w", "rel_pos_emb", "distance_embedding", "per_dim_scale", "emb_rel_k",
    "emb_rel_v", "scaling",
)  # fmt: skip
QUERY_NORMS = ("q_norm", "query_norm", "q_layernorm", "query_layernorm", "q_layer_norm", "norm_q")
KEY_NORMS = ("k_norm", "key_norm", "k_layernorm", "key_layernorm", "k_layer_norm", "norm_k")
VALUE_NORMS = ("v_norm", "value_norm")

# Arguments of a forward pass that carry the cache, the mask and the source of the keys.
CACHE_ARGUMENTS = ("past_key_values", "past_key_value", "layer_past")
LAYER_NUMBERS = ("layer_idx", "layer_id")
MASK_ARGUMENTS = ("attention_mask", "mask", "causal_mask")
SOURCE_ARGUMENTS = ("key_value_states", "encoder_hidden_states", "context")
CROSS_NAMES = ("crossattention", "encoder_attn", "encdecattention", "cross_attn", "cross_attention")


@dataclass(frozen=True)
class Family:
    """What cannot be seen from the structure of an attention class.

    Attributes:
        arguments: arguments of the forward pass with a value per head.
        after_projection: how an emptied block answers; give it where the code is not plain.
        query_copies: blocks of head size that each head has in the query projection; 2 for a
            query and a gate of the same size.
        interleaved: name of the fused projection, if it has q, k, v head by head.
        slices: number of slices of the heads in a fused projection; each has its q, v and k.
        shares_bias: the first block computes a bias of all heads and gives it to the others.
        columns: submodules or parameters of this class with a column per head.
        rows: submodules or parameters of this class with rows per head.
        pools_queries: the output is shorter than the input, so an emptied block cannot answer.
        padded: the code needs the original width; see `surgery.padded`.
        harmless: submodules and parameters without values per head. They act on the hidden
            states, before q, k and v or after o.
        refused: why blocks of this class are not understood; empty if they are.
    """

    arguments: tuple[HeadArgument, ...] = ()
    after_projection: AfterProjection | None = None
    query_copies: int = 1
    interleaved: str = ""
    slices: int = 1
    shares_bias: bool = False
    columns: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    pools_queries: bool = False
    padded: bool = False
    harmless: tuple[str, ...] = ()
    refused: str = ""


ALIBI = HeadArgument("alibi", dim=0, folded=True)
MASK_PER_HEAD = Family(arguments=(HeadArgument("attention_mask", dim=1),))
SHARED_BIAS = Family(shares_bias=True)
PADDED = Family(padded=True)
QUERY_AND_GATE = Family(query_copies=2)
DISTANCE_BIASES = Family(
    arguments=(HeadArgument("rel_pos", dim=1), HeadArgument("rel_2d_pos", dim=1))
)
# Model types whose blocks are understood one by one, but not together.
REFUSED_MODELS = {
    "pi0": "its two stacks share one cache, so both would have to lose the same heads",
}
# The same of layers, by class and by what makes the difference.
REFUSED_LAYERS = {
    ("BigBirdLayer", "crossattention"): (
        "its cross-attention takes keys from the cache of its self-attention"
    ),
}

FAMILIES: dict[str, Family] = {
    "AlbertAttention": Family(
        after_projection=AfterProjection(
            "output, weights", ("output_dropout", "LayerNorm"), residual="hidden_states"
        ),
        harmless=("LayerNorm",),
    ),
    "AutoformerAttention": Family(refused="its heads choose the lags together"),
    "BeitAttention": MASK_PER_HEAD,
    "Blip2Attention": PADDED,
    "BlipAttention": PADDED,
    "BloomAttention": Family(
        arguments=(ALIBI,), after_projection=AfterProjection("output, weights", residual="residual")
    ),
    "BltCrossAttention": Family(harmless=("q_norm", "k_norm")),  # before q and k, not after them
    "CodeGenAttention": Family(padded=True, slices=4),
    "CpmAntAttention": PADDED,
    "Data2VecVisionSelfAttention": Family(
        arguments=(HeadArgument("relative_position_bias", dim=1),)
    ),
    "EomtAttention": MASK_PER_HEAD,
    "EomtDinov3Attention": MASK_PER_HEAD,
    "FalconAttention": PADDED,
    "Florence2VisionWindowAttention": PADDED,
    "FunnelRelMultiheadAttention": Family(
        padded=True,
        harmless=("r_w_bias", "r_r_bias", "r_kernel", "r_s_bias", "seg_embed", "layer_norm"),
    ),
    "EfficientLoFTRAttention": PADDED,
    "GLPNEfficientSelfAttention": Family(harmless=("sr", "layer_norm")),
    # One key and value for all queries is one group; several heads are fused head by head.
    "GPTBigCodeAttention": Family(interleaved="c_attn"),
    "GraniteSpeechConformerAttention": Family(harmless=("pre_norm",)),
    "GraniteSpeechPlusConformerAttention": Family(harmless=("pre_norm",)),
    "GroundingDinoMultiheadAttention": MASK_PER_HEAD,
    "GroupViTAttention": PADDED,
    "HieraMaskUnitAttention": Family(pools_queries=True),
    "InstructBlipAttention": PADDED,
    "InstructBlipVideoAttention": PADDED,
    "LEDDecoderAttention": PADDED,
    "LSHSelfAttention": Family(refused="it shares queries and keys and sorts tokens by hashes"),
    "LayoutLMv3SelfAttention": DISTANCE_BIASES,
    "LocalSelfAttention": Family(refused="it attends in chunks that hashed attention has sorted"),
    "LongT5Attention": SHARED_BIAS,
    "LongT5LocalAttention": Family(padded=True, harmless=("relative_attention_bias",)),
    "LongT5TransientGlobalAttention": Family(
        padded=True,
        harmless=(
            "relative_attention_bias",
            "global_relative_attention_bias",
            "global_input_layer_norm",
        ),
    ),
    "LongformerSelfAttention": Family(
        padded=True, rows=("query_global", "key_global", "value_global")
    ),
    "LukeSelfAttention": Family(rows=("w2e_query", "e2w_query", "e2e_query")),
    "MMGroundingDinoMultiheadAttention": MASK_PER_HEAD,
    "MPNetSelfAttention": Family(arguments=(HeadArgument("position_bias", dim=1),)),
    "MT5Attention": SHARED_BIAS,
    "Mask2FormerAttention": PADDED,
    "MgpstrAttention": PADDED,
    "MptAttention": PADDED,
    "MvpAttention": Family(arguments=(HeadArgument("attn_prompt", dim=1),)),
    "NystromformerSelfAttention": Family(padded=True, harmless=("conv",)),
    "OneFormerAttention": PADDED,
    "PPOCRV5MobileRecAttention": PADDED,
    "PPOCRV5ServerRecAttention": PADDED,
    "PPOCRV6SmallRecAttention": PADDED,
    "PPDocLayoutV2ReadingOrderSelfAttention": DISTANCE_BIASES,
    "PegasusXAttention": PADDED,
    "PegasusXGlobalLocalAttention": PADDED,
    "PerceiverSelfAttention": Family(harmless=("layernorm1", "layernorm2")),
    "Pix2StructTextAttention": SHARED_BIAS,
    "Pop2PianoAttention": SHARED_BIAS,
    "ProphetNetAttention": PADDED,
    "PvtEfficientSelfAttention": Family(harmless=("sequence_reduction", "layer_norm")),
    "PvtV2SelfAttention": Family(padded=True, harmless=("spatial_reduction", "layer_norm")),
    "Qwen3NextAttention": QUERY_AND_GATE,
    "Qwen3_5Attention": QUERY_AND_GATE,
    "Qwen3_5MoeAttention": QUERY_AND_GATE,
    "Qwen4ExpTextAttention": QUERY_AND_GATE,
    "Sam3Attention": MASK_PER_HEAD,
    "Sam3LiteTextAttention": MASK_PER_HEAD,
    "Sam2MultiScaleAttention": Family(padded=True, pools_queries=True),
    "SegformerAttention": Family(harmless=("sequence_reduction",)),
    "SwitchTransformersAttention": SHARED_BIAS,
    "Swin2SRSelfAttention": Family(padded=True, harmless=("continuous_position_bias_mlp",)),
    "Swinv2SelfAttention": Family(padded=True, harmless=("continuous_position_bias_mlp",)),
    "T5Attention": SHARED_BIAS,
    "TableTransformerAttention": PADDED,
    "TimesformerSelfAttention": PADDED,
    "TrOCRAttention": PADDED,
    "UMT5Attention": Family(columns=("relative_attention_bias",)),
    "UdopAttention": SHARED_BIAS,
    # Its rotation has an angle for each head.
    "Xcodec2Attention": PADDED,
    "modeling_dab_detr.DetrAttention": PADDED,
    "modeling_deberta.DisentangledSelfAttention": Family(
        interleaved="in_proj", rows=("q_bias", "v_bias")
    ),
    "modeling_fsmt.Attention": PADDED,
}
PLAIN = Family()


def family_of(attention: object) -> Family:
    """The row of an attention module's class or of a base class; an empty row if there is none.

    In the table, a class name that several families use has its module's name before it.
    """
    for cls in type(attention).__mro__:
        full_name = f"{cls.__module__.rpartition('.')[2]}.{cls.__name__}"
        for name in (full_name, cls.__name__):
            if name in FAMILIES:
                return FAMILIES[name]
    return PLAIN
