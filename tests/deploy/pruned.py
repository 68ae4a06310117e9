"""Tiny decoders with heads cut in every way that a format may have trouble with."""

from __future__ import annotations

from typing import Any

import torch
import transformers
from transformers import PreTrainedModel

from headcount import HeadMask, find_heads, remove_heads

HEADS, KEY_VALUES, LAYERS, VOCABULARY = 8, 2, 4, 128
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
LINEAR = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 64,
}
# By name: the class of transformers, and what its configuration says.
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {}),
    "llama tied": ("Llama", {"tie_word_embeddings": True}),
    "llama biased": ("Llama", {"attention_bias": True, "mlp_bias": True}),
    "llama 3": ("Llama", {"rope_parameters": LLAMA3}),
    "llama linear": ("Llama", {"rope_parameters": LINEAR}),
    "llama yarn": ("Llama", {"rope_parameters": YARN}),
    "mistral": ("Mistral", {"sliding_window": None}),
    "mistral windowed": ("Mistral", {"sliding_window": 13}),
    "mistral windowed tied": ("Mistral", {"sliding_window": 13, "tie_word_embeddings": True}),
    "qwen2": ("Qwen2", {}),
    "seed_oss": ("SeedOss", {"attention_bias": True, "attention_out_bias": False}),
    "qwen3": ("Qwen3", {}),
    "qwen3 tied": ("Qwen3", {"tie_word_embeddings": True}),
    "qwen3 tied yarn": ("Qwen3", {"tie_word_embeddings": True, "rope_parameters": YARN}),
    "qwen3 tied linear": ("Qwen3", {"tie_word_embeddings": True, "rope_parameters": LINEAR}),
    "qwen3 yarn": ("Qwen3", {"rope_parameters": YARN}),
    "qwen3 biased": ("Qwen3", {"attention_bias": True}),
}
EVERY = tuple(range(HEADS))
# By name: the heads that each layer keeps. Heads 0 to 3 share keys and values, and so do 4 to 7.
LAYOUTS: dict[str, tuple[tuple[int, ...], ...]] = {
    "whole": (EVERY, EVERY, EVERY, EVERY),
    "even": ((0, 1, 4, 5), (2, 3, 6, 7), (0, 3, 5, 6), (1, 2, 4, 7)),
    "uneven": ((0, 1, 4, 5), (0,), EVERY, (2, 3)),
    "uneven groups": ((0, 1, 4), (0, 4, 5, 6), (1, 2, 3, 4, 5), (7,)),
    "first emptied": ((), (0, 1, 4, 5), (0, 4), (1,)),
    "middle emptied": ((0, 4), (), (3,), (0, 1, 2, 3)),
    "last emptied": ((0, 4), (0, 1, 4, 5), (3,), ()),
}


def tiny(kind: str, **more: Any) -> PreTrainedModel:
    """A decoder whose weights are all random and large enough to matter, biases and norms too."""
    name, settings = KINDS[kind]
    given = {
        "vocab_size": VOCABULARY,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KEY_VALUES,
        "head_dim": 32,
        "max_position_embeddings": 256,
        "tie_word_embeddings": False,
        **settings,
        **more,
    }
    if name in ("Mistral", "SeedOss", "Qwen2", "Qwen3", "Llama"):
        given.setdefault("pad_token_id", None)
    config = getattr(transformers, f"{name}Config")(**given)
    model = getattr(transformers, f"{name}ForCausalLM")(config).eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            drawn = torch.randn(parameter.shape, generator=generator)
            norm = "norm" in parameter_name
            parameter.copy_(1 + 0.2 * drawn if norm else 0.15 * drawn)
    return model


def pruned(kind: str, layout: str, **more: Any) -> PreTrainedModel:
    model = tiny(kind, **more)
    cut(model, LAYOUTS[layout])
    return model


def cut(model: PreTrainedModel, layout: tuple[tuple[int, ...], ...]) -> None:
    heads = find_heads(model)
    indices = [
        block.offset + head
        for block, kept in zip(heads.blocks, layout, strict=True)
        for head in kept
    ]
    if len(indices) < len(heads):
        remove_heads(model, HeadMask.from_indices(heads, indices))
