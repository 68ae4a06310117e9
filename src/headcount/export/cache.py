"""Caches as tensors with names: every layer has its own number of heads, an emptied one a stub."""

from __future__ import annotations

from typing import Any, TypeVar

from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import Cache

from headcount.errors import HeadcountError
from headcount.export.graph import Tensors

LayerShape = tuple[tuple[int, int], tuple[int, int]]  # heads and size, of keys and of values
Filled = TypeVar("Filled", bound=Cache)


def layer_shapes(model: PreTrainedModel, cache: object) -> list[LayerShape]:
    """Heads and sizes of every layer of a cache that the model made.

    Raises:
        HeadcountError: it is not a cache of keys and values.
    """
    layers = getattr(cache, "layers", [])
    pairs = [(getattr(layer, "keys", None), getattr(layer, "values", None)) for layer in layers]
    shapes = [
        ((keys.shape[1], keys.shape[3]), (values.shape[1], values.shape[3]))
        for keys, values in pairs
        if isinstance(keys, Tensor) and isinstance(values, Tensor) and keys.dim() == 4
    ]
    if not shapes or len(shapes) != len(pairs):
        raise HeadcountError(
            f"{type(model).__name__} cannot be exported: its cache has layers without keys and "
            "values; export a model whose layers all have attention"
        )
    return shapes


def filled(cache: Filled, given: Tensors, prefix: str, kind: str = "") -> Filled:
    """The cache, with the keys and values that are named so among the inputs.

    The sliding windows of some families are left to their masks: this cache keeps every token.
    """
    layer = 0
    while (name := f"{prefix}.{layer}{kind}") + ".key" in given:
        cache.update(given[f"{name}.key"], given[f"{name}.value"], layer)
        layer += 1
    return cache


def tensors_of(cache: Any) -> tuple[Tensor, ...]:
    """Keys and values of every layer in turn."""
    return tuple(tensor for layer in cache.layers for tensor in (layer.keys, layer.values))
