"""Tiny random models of the real `transformers` classes, the masks, and how outputs are compared.

Adding a family to the tests is a row in `FAMILIES`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn
from transformers import PretrainedConfig, PreTrainedModel

from headcount import HeadMap, HeadMask, find_heads

Inputs = dict[str, Tensor]

BATCH, LENGTH, PADDED = 2, 7, 2
VOCABULARY, PAD = 50, 1


def _noise(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


def _tokens(length: int = LENGTH, seed: int = 2) -> Tensor:
    """Random tokens, none of them special."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(5, VOCABULARY, (BATCH, length), generator=generator)


def _padded(places: slice) -> Inputs:
    ids, mask = _tokens(), torch.ones(BATCH, LENGTH, dtype=torch.long)
    ids[1, places], mask[1, places] = PAD, 0
    return {"input_ids": ids, "attention_mask": mask}


def padded_right() -> Inputs:
    """Tokens for an encoder; the second example is shorter."""
    return _padded(slice(-PADDED, None))


def padded_left() -> Inputs:
    """Tokens for a decoder, padded where generation wants it."""
    return _padded(slice(PADDED))


def source_and_target() -> Inputs:
    """Tokens for an encoder-decoder."""
    return {**padded_right(), "decoder_input_ids": _tokens(5, seed=3)}


def spectrum_and_target() -> Inputs:
    """Mel features and tokens for a speech encoder-decoder."""
    return {"input_features": _noise(BATCH, 8, 16), "decoder_input_ids": _tokens(5, seed=3)}


def image() -> Inputs:
    """An image of four patches per example."""
    return {"pixel_values": _noise(BATCH, 3, 8, 8)}


def image_and_text() -> Inputs:
    """What both towers of CLIP see."""
    return {**image(), **padded_right()}


def waveform() -> Inputs:
    """Raw sound; the second example is shorter."""
    mask = torch.ones(BATCH, 80, dtype=torch.long)
    mask[1, 60:] = 0
    return {"input_values": _noise(BATCH, 80) * mask, "attention_mask": mask}


@dataclass(frozen=True)
class Family:
    """One row of the table: a real architecture, small.

    Attributes:
        name: what the tests call it.
        architecture: class of the model in `transformers`.
        config: class of its configuration.
        settings: the sizes, in the family's own words.
        inputs: makes a batch of two.
    """

    name: str
    architecture: str
    config: str
    settings: dict[str, Any] = field(repr=False)
    inputs: Callable[[], Inputs]

    @property
    def is_seq2seq(self) -> bool:
        """Whether it has an encoder and a decoder."""
        return self.inputs in (source_and_target, spectrum_and_target)

    @property
    def generates(self) -> bool:
        """Whether it writes text."""
        return self.is_seq2seq or self.inputs is padded_left

    def prompt(self) -> Inputs:
        """The batch that `generate` takes."""
        return {name: t for name, t in self.inputs().items() if name != "decoder_input_ids"}

    @property
    def is_grouped(self) -> bool:
        """Whether several queries share a key-value head."""
        return "num_key_value_heads" in self.settings


def _bert_like(**more: Any) -> dict[str, Any]:
    return {
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "intermediate_size": 48,
        "max_position_embeddings": 32,
        "pad_token_id": PAD,
    } | more


def _llama_like(**more: Any) -> dict[str, Any]:
    return _bert_like(num_key_value_heads=2, bos_token_id=2, eos_token_id=3) | more


def _bart_like(**more: Any) -> dict[str, Any]:
    return {
        "vocab_size": VOCABULARY,
        "d_model": 32,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 48,
        "decoder_ffn_dim": 48,
        "max_position_embeddings": 32,
        "pad_token_id": PAD,
        "bos_token_id": 2,
        "eos_token_id": 3,
        "decoder_start_token_id": 2,
        "forced_eos_token_id": None,
    } | more


T5_LIKE = {
    "vocab_size": VOCABULARY,
    "d_model": 32,
    "d_kv": 8,
    "d_ff": 48,
    "num_layers": 2,
    "num_decoder_layers": 2,
    "num_heads": 4,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 16,
    "pad_token_id": PAD,
    "eos_token_id": 3,
    "decoder_start_token_id": 2,
}
DEBERTA_LIKE = _bert_like(
    relative_attention=True,
    position_buckets=4,
    pos_att_type=["c2p", "p2c"],
    norm_rel_ebd="layer_norm",
    position_biased_input=False,
)
VISION = {
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "image_size": 8,
    "patch_size": 4,
}
SPEECH = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "conv_dim": (16, 16),
    "conv_kernel": (4, 4),
    "conv_stride": (2, 2),
    "num_conv_pos_embeddings": 8,
    "num_conv_pos_embedding_groups": 2,
    "apply_spec_augment": False,
}
MIXED_LAYERS = ["sliding_attention", "full_attention", "sliding_attention"]

FAMILIES = (
    # Encoders.
    Family("bert", "BertForMaskedLM", "BertConfig", _bert_like(), padded_right),
    Family("roberta", "RobertaForMaskedLM", "RobertaConfig", _bert_like(), padded_right),
    Family("xlm-roberta", "XLMRobertaForMaskedLM", "XLMRobertaConfig", _bert_like(), padded_right),
    Family("camembert", "CamembertForMaskedLM", "CamembertConfig", _bert_like(), padded_right),
    Family(
        "distilbert",
        "DistilBertForMaskedLM",
        "DistilBertConfig",
        {
            "vocab_size": VOCABULARY,
            "dim": 32,
            "n_layers": 3,
            "n_heads": 4,
            "hidden_dim": 48,
            "max_position_embeddings": 32,
            "pad_token_id": PAD,
        },
        padded_right,
    ),
    Family(
        "electra",
        "ElectraForMaskedLM",
        "ElectraConfig",
        _bert_like(embedding_size=16),
        padded_right,
    ),
    Family("mpnet", "MPNetForMaskedLM", "MPNetConfig", _bert_like(), padded_right),
    Family(
        "albert", "AlbertForMaskedLM", "AlbertConfig", _bert_like(embedding_size=16), padded_right
    ),
    Family("deberta-v2", "DebertaV2ForMaskedLM", "DebertaV2Config", DEBERTA_LIKE, padded_right),
    Family(
        "deberta-v2-shared-key",
        "DebertaV2ForMaskedLM",
        "DebertaV2Config",
        DEBERTA_LIKE | {"share_att_key": True},
        padded_right,
    ),
    Family(
        "modernbert",
        "ModernBertForMaskedLM",
        "ModernBertConfig",
        _bert_like(
            local_attention=4,
            global_attn_every_n_layers=2,
            bos_token_id=2,
            cls_token_id=2,
            eos_token_id=3,
            sep_token_id=3,
        ),
        padded_right,
    ),
    # Decoders.
    Family(
        "gpt2",
        "GPT2LMHeadModel",
        "GPT2Config",
        {
            "vocab_size": VOCABULARY,
            "n_embd": 32,
            "n_layer": 3,
            "n_head": 4,
            "n_inner": 48,
            "n_positions": 32,
            "pad_token_id": PAD,
            "bos_token_id": 2,
            "eos_token_id": 3,
        },
        padded_left,
    ),
    Family(
        "gpt-neo",
        "GPTNeoForCausalLM",
        "GPTNeoConfig",
        {
            "vocab_size": VOCABULARY,
            "hidden_size": 32,
            "num_layers": 3,
            "num_heads": 4,
            "intermediate_size": 48,
            "max_position_embeddings": 32,
            "attention_types": [[["global", "local", "global"], 1]],
            "window_size": 4,
            "pad_token_id": PAD,
            "bos_token_id": 2,
            "eos_token_id": 3,
        },
        padded_left,
    ),
    Family(
        "gpt-neox",
        "GPTNeoXForCausalLM",
        "GPTNeoXConfig",
        _bert_like(bos_token_id=2, eos_token_id=3),
        padded_left,
    ),
    Family(
        "opt",
        "OPTForCausalLM",
        "OPTConfig",
        {
            "vocab_size": VOCABULARY,
            "hidden_size": 32,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "ffn_dim": 48,
            "word_embed_proj_dim": 32,
            "max_position_embeddings": 32,
            "pad_token_id": PAD,
            "bos_token_id": 2,
            "eos_token_id": 3,
        },
        padded_left,
    ),
    Family(
        "bloom",
        "BloomForCausalLM",
        "BloomConfig",
        {
            "vocab_size": VOCABULARY,
            "hidden_size": 32,
            "n_layer": 3,
            "n_head": 4,
            "pad_token_id": PAD,
            "bos_token_id": 2,
            "eos_token_id": 3,
        },
        padded_left,
    ),
    Family("llama", "LlamaForCausalLM", "LlamaConfig", _llama_like(), padded_left),
    Family(
        "mistral", "MistralForCausalLM", "MistralConfig", _llama_like(sliding_window=4), padded_left
    ),
    Family("qwen2", "Qwen2ForCausalLM", "Qwen2Config", _llama_like(), padded_left),
    Family("qwen3", "Qwen3ForCausalLM", "Qwen3Config", _llama_like(head_dim=16), padded_left),
    Family(
        "gemma2",
        "Gemma2ForCausalLM",
        "Gemma2Config",
        _llama_like(head_dim=8, sliding_window=4, layer_types=MIXED_LAYERS),
        padded_left,
    ),
    Family(
        "gemma3",
        "Gemma3ForCausalLM",
        "Gemma3TextConfig",
        _llama_like(head_dim=8, sliding_window=4, layer_types=MIXED_LAYERS),
        padded_left,
    ),
    Family("phi3", "Phi3ForCausalLM", "Phi3Config", _llama_like(), padded_left),
    Family("olmo2", "Olmo2ForCausalLM", "Olmo2Config", _llama_like(), padded_left),
    # Encoder-decoders.
    Family("t5", "T5ForConditionalGeneration", "T5Config", T5_LIKE, source_and_target),
    Family("mt5", "MT5ForConditionalGeneration", "MT5Config", T5_LIKE, source_and_target),
    Family("bart", "BartForConditionalGeneration", "BartConfig", _bart_like(), source_and_target),
    Family(
        "mbart", "MBartForConditionalGeneration", "MBartConfig", _bart_like(), source_and_target
    ),
    Family("marian", "MarianMTModel", "MarianConfig", _bart_like(), source_and_target),
    Family(
        "pegasus",
        "PegasusForConditionalGeneration",
        "PegasusConfig",
        _bart_like(),
        source_and_target,
    ),
    Family(
        "m2m-100", "M2M100ForConditionalGeneration", "M2M100Config", _bart_like(), source_and_target
    ),
    Family(
        "whisper",
        "WhisperForConditionalGeneration",
        "WhisperConfig",
        _bart_like(num_mel_bins=8, max_source_positions=8, max_target_positions=32),
        spectrum_and_target,
    ),
    # Vision and speech.
    Family("vit", "ViTForImageClassification", "ViTConfig", VISION, image),
    Family("deit", "DeiTForImageClassification", "DeiTConfig", VISION, image),
    Family(
        "clip",
        "CLIPModel",
        "CLIPConfig",
        {
            "text_config": _bert_like(bos_token_id=2, eos_token_id=3),
            "vision_config": VISION,
            "projection_dim": 16,
        },
        image_and_text,
    ),
    Family("wav2vec2", "Wav2Vec2ForCTC", "Wav2Vec2Config", SPEECH, waveform),
    Family("hubert", "HubertForCTC", "HubertConfig", SPEECH, waveform),
)


def families(*names: str, **properties: bool) -> Any:
    """Parametrise a test over the families of these names, or over those with these properties."""
    rows = [
        pytest.param(family, id=family.name)
        for family in FAMILIES
        if (not names or family.name in names)
        and all(getattr(family, name) == value for name, value in properties.items())
    ]
    return pytest.mark.parametrize("family", rows)


def family_named(name: str) -> Family:
    """The row of that name."""
    return next(family for family in FAMILIES if family.name == name)


def build(family: Family | str, attention: str = "default") -> PreTrainedModel:
    """A new copy of the family's tiny model, always with the same weights.

    Args:
        family: the row, or its name.
        attention: `default` for the implementation that the class chooses, or `eager`.
    """
    row = family_named(family) if isinstance(family, str) else family
    return copy.deepcopy(_built(row.name, attention))


@cache
def _built(name: str, attention: str) -> PreTrainedModel:
    family = family_named(name)
    if family.architecture not in dir(transformers):
        pytest.skip(f"transformers {transformers.__version__} has no {family.architecture}")
    config = getattr(transformers, family.config)(**family.settings)
    _without_dropout(config)
    if attention != "default":
        config._attn_implementation = attention
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model: PreTrainedModel = getattr(transformers, family.architecture)(config)
    _redraw(model)
    return model.eval()


def _without_dropout(config: PretrainedConfig) -> None:
    for name, value in list(vars(config).items()):
        if isinstance(value, PretrainedConfig):
            _without_dropout(value)
        elif "drop" in name and isinstance(value, float):
            setattr(config, name, 0.0)


def _redraw(model: nn.Module) -> None:
    """Draw every parameter such that every head matters and no bias or norm is neutral.

    Wider draws let mT5's unscaled attention blow rounding up beyond 1e-5.
    """
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        if not parameter.requires_grad:
            continue  # a sinusoid, which transformers computes anew on loading
        noise = 0.15 * torch.randn(parameter.shape, generator=generator)
        parameter.data = parameter.data + noise if parameter.dim() < 2 else noise


def _without_block(heads: HeadMap, place: int) -> HeadMask:
    emptied = HeadMask.from_indices(heads, heads.blocks[place].indices)
    return HeadMask.all(heads) - emptied


def _without_first_decoder_block(heads: HeadMap) -> HeadMask:
    """Empty the block whose cache is asked for the length of the sequence."""
    return _without_block(heads, [block.kind for block in heads.blocks].index("decoder"))


def _three_heads_each(heads: HeadMap) -> HeadMask:
    """Each block loses its last head: a grouped block keeps a group of two and one of one."""
    return HeadMask.from_indices(heads, (i for block in heads.blocks for i in block.indices[:3]))


MASKS: dict[str, Callable[[HeadMap], HeadMask]] = {
    "half": lambda heads: HeadMask.random(heads, keep=0.5, seed=0),
    "uneven": lambda heads: HeadMask.random(heads, keep=0.7, seed=1),
    "three_heads_each": _three_heads_each,
    "one_head": lambda heads: HeadMask.random(heads, keep=1, seed=3),
    "empty_first_block": lambda heads: _without_block(heads, 0),
    "empty_first_decoder_block": _without_first_decoder_block,
    "empty_middle_block": lambda heads: _without_block(heads, len(heads.blocks) // 2),
    "empty_every_block": HeadMask.none,
}


def masks(*names: str) -> Any:
    """Parametrise a test over these masks."""
    return pytest.mark.parametrize("mask_name", names)


def mask_for(model: nn.Module, mask_name: str) -> HeadMask:
    """The mask of that name for this model."""
    return MASKS[mask_name](find_heads(model))


Outputs = dict[str, Tensor]


def run(model: PreTrainedModel, inputs: Inputs) -> Outputs:
    """All floating-point outputs of a model, hidden states included."""
    with torch.no_grad():
        return floats(model(**inputs, output_hidden_states=True))


def floats(output: Any) -> Outputs:
    """The floating-point tensors of a model's output, by name; caches are not outputs."""
    return dict(_floats("", output))


def _floats(name: str, value: Any) -> Iterator[tuple[str, Tensor]]:
    if isinstance(value, Tensor):
        if value.is_floating_point():
            yield name, value
    elif isinstance(value, dict | tuple):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, inner in items:
            yield from _floats(f"{name}.{key}".strip("."), inner)


def difference(some: Outputs, others: Outputs) -> float:
    """The largest difference of two models' outputs, which must have the same form."""
    assert some
    assert {name: t.shape for name, t in some.items()} == {n: t.shape for n, t in others.items()}
    assert all(tensor.isfinite().all() for tensor in (*some.values(), *others.values()))
    gaps = (some[name] - others[name] for name in some if some[name].numel())
    return max(float(gap.detach().abs().max()) for gap in gaps)
