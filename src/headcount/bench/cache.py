"""How much memory the keys and values of past tokens take while a model generates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from transformers import EncoderDecoderCache, PreTrainedModel

from headcount.pruners.michel import Batch


def cache_bytes(model: PreTrainedModel, inputs: Batch) -> int:
    """Bytes of the cache after a forward pass over these inputs, cross-attention included."""
    with torch.inference_mode():
        cache = model(**inputs, use_cache=True).past_key_values
    return sum(tensor.numel() * tensor.element_size() for tensor in _tensors(cache))


def _tensors(cache: Any) -> Iterator[Tensor]:
    if isinstance(cache, EncoderDecoderCache):
        yield from _tensors(cache.self_attention_cache)
        yield from _tensors(cache.cross_attention_cache)
        return
    for layer in cache.layers:
        if layer.keys is not None:
            yield from (layer.keys, layer.values)
