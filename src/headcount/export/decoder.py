"""The graph of a decoder: tokens and a cache go in, logits and the longer cache come out.

The past may be empty, so one graph reads a prompt and continues it.
"""

from __future__ import annotations

import inspect

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from headcount.export import examples
from headcount.export.cache import filled, layer_shapes, tensors_of
from headcount.export.graph import Graph, Shape, Sizes, Step, Tensors

SIZES = (Sizes(2, 5, 4), Sizes(3, 9, 0), Sizes(2, 1, 6), Sizes(1, 1, 0), Sizes(1, 4, 1))
PAST, PRESENT = "past_key_values", "present"


class DecoderStep(Step):
    """The next tokens, after those of the cache."""

    def answer(self, given: Tensors) -> tuple[Tensor, ...]:
        """Logits, then keys and values of every layer."""
        past = filled(DynamicCache(), given, PAST)
        plain = {name: value for name, value in given.items() if not name.startswith(PAST)}
        output = self.model(**plain, past_key_values=past, use_cache=True, return_dict=True)
        return (output.logits, *tensors_of(output.past_key_values))


def decoder_graph(model: PreTrainedModel) -> Graph:
    """The one graph that reads a prompt and continues it."""
    inputs: dict[str, Shape] = {
        "input_ids": ("batch", "sequence"),
        "attention_mask": ("batch", "past_and_sequence"),
    }
    if "position_ids" in inspect.signature(model.forward).parameters:
        inputs["position_ids"] = ("batch", "sequence")
    with torch.no_grad():
        found = model(input_ids=examples.tokens(model, 1, 2), use_cache=True).past_key_values
    shapes = layer_shapes(model, found)
    for layer, pair in enumerate(shapes):
        for kind, (heads, size) in zip(("key", "value"), pair, strict=True):
            inputs[f"{PAST}.{layer}.{kind}"] = ("batch", heads, "past", size)

    def example(sizes: Sizes) -> Tensors:
        mask = examples.mask(sizes.batch, sizes.past + sizes.length, left=True)
        ids = examples.tokens(model, sizes.batch, sizes.length)
        made = {"input_ids": examples.padded(model, ids, mask), "attention_mask": mask}
        if "position_ids" in inputs:
            made["position_ids"] = positions(mask)[:, sizes.past :].clone()  # no view: torch looks
        for place, (name, shape) in enumerate(inputs.items()):
            if name.startswith(PAST):
                heads, size = int(shape[1]), int(shape[3])
                made[name] = examples.cache((sizes.batch, heads, sizes.past, size), place)
        return made

    present = (name.replace(PAST, PRESENT) for name in inputs if name.startswith(PAST))
    step = DecoderStep(model, tuple(inputs))
    return Graph("model", step, inputs, ("logits", *present), example, SIZES)


def positions(mask: Tensor) -> Tensor:
    """Places of the tokens, counted from the first that is not padding."""
    return (mask.cumsum(-1) - 1).masked_fill(mask == 0, 0)
