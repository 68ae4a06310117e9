"""The graph of a decoder: tokens and a cache go in, logits and the longer cache come out.

The past may be empty, so that one graph reads a prompt and continues it. A graph has named tensors
instead of a cache; the functions at the end turn one into the other, also for encoder-decoders.
"""

from __future__ import annotations

import inspect
from typing import Any, TypeVar

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import Cache

from headcount.deploy import examples
from headcount.deploy.graph import (
    BATCH,
    LENGTH,
    PAST_LENGTH,
    WHOLE_LENGTH,
    Graph,
    Shape,
    Sizes,
    Step,
    Tensors,
)
from headcount.deploy.regular import NotHeldError

SIZES = (Sizes(2, 5, 4), Sizes(3, 9, 0), Sizes(2, 1, 6), Sizes(1, 1, 0), Sizes(1, 4, 1))
PAST, PRESENT = "past_key_values", "present"  # how the tensors of a cache are named, in and out
LayerShape = tuple[tuple[int, int], tuple[int, int]]  # heads and size, of keys and of values
Filled = TypeVar("Filled", bound=Cache)


def decoder_graph(model: PreTrainedModel) -> Graph:
    """The one graph that reads a prompt and continues it."""
    inputs: dict[str, Shape] = {
        "input_ids": (BATCH, LENGTH),
        "attention_mask": (BATCH, WHOLE_LENGTH),
    }
    if "position_ids" in inspect.signature(model.forward).parameters:
        inputs["position_ids"] = (BATCH, LENGTH)
    with torch.no_grad():
        found = model(input_ids=examples.tokens(model, 1, 2), use_cache=True).past_key_values
    shapes = layer_shapes(found)
    for layer, pair in enumerate(shapes):
        for kind, (heads, size) in zip(("key", "value"), pair, strict=True):
            inputs[f"{PAST}.{layer}.{kind}"] = (BATCH, heads, PAST_LENGTH, size)

    def example(sizes: Sizes) -> Tensors:
        mask = examples.mask(sizes.batch, sizes.past + sizes.length, left=True)
        ids = examples.tokens(model, sizes.batch, sizes.length)
        made = {"input_ids": examples.padded(model, ids, mask), "attention_mask": mask}
        if "position_ids" in inputs:
            # A copy, not a view: the exporter also sees how an example lies in memory.
            made["position_ids"] = positions(mask)[:, sizes.past :].clone()
        for place, (name, shape) in enumerate(inputs.items()):
            if name.startswith(PAST):
                heads, size = int(shape[1]), int(shape[3])
                made[name] = examples.cache((sizes.batch, heads, sizes.past, size), place)
        return made

    present = (name.replace(PAST, PRESENT) for name in inputs if name.startswith(PAST))
    step = DecoderStep(model, tuple(inputs))
    return Graph("model", step, inputs, ("logits", *present), example, SIZES)


class DecoderStep(Step):
    """One pass over the next tokens, after those of the cache."""

    def answer(self, given: Tensors) -> tuple[Tensor, ...]:
        """Logits, then keys and values of every layer."""
        past = filled(DynamicCache(), given, PAST)
        plain = {name: value for name, value in given.items() if not name.startswith(PAST)}
        output = self.model(**plain, past_key_values=past, use_cache=True, return_dict=True)
        return (output.logits, *tensors_of(output.past_key_values))


def positions(mask: Tensor) -> Tensor:
    """Positions of the tokens, counted from the first that is not padding."""
    return (mask.cumsum(-1) - 1).masked_fill(mask == 0, 0)


def layer_shapes(cache: object) -> list[LayerShape]:
    """Heads and sizes of the keys and values of every layer.

    Args:
        cache: a cache that a model made.

    Raises:
        NotHeldError: a layer of the cache has no keys and values.
    """
    layers = getattr(cache, "layers", [])
    pairs = [(getattr(layer, "keys", None), getattr(layer, "values", None)) for layer in layers]
    shapes = [
        ((keys.shape[1], keys.shape[3]), (values.shape[1], values.shape[3]))
        for keys, values in pairs
        if isinstance(keys, Tensor) and isinstance(values, Tensor) and keys.dim() == 4
    ]
    if not shapes or len(shapes) != len(pairs):
        raise NotHeldError("its cache has layers without keys and values")
    return shapes


def filled(cache: Filled, given: Tensors, prefix: str, kind: str = "") -> Filled:
    """Fill an empty cache with the keys and values among a graph's inputs.

    This cache keeps every token. The sliding windows of some families are left to their masks.

    Args:
        cache: the cache to fill.
        given: the inputs by name.
        prefix: how the names of keys and values begin, before the number of the layer.
        kind: the part of their names after that number; in an encoder-decoder, the side.
    """
    layer = 0
    while (name := f"{prefix}.{layer}{kind}") + ".key" in given:
        cache.update(given[f"{name}.key"], given[f"{name}.value"], layer)
        layer += 1
    return cache


def tensors_of(cache: Any) -> tuple[Tensor, ...]:
    """Keys and values of one layer after another."""
    return tuple(tensor for layer in cache.layers for tensor in (layer.keys, layer.values))
