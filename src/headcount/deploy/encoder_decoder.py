"""The three graphs of an encoder-decoder: its encoder, the first step, and all later steps.

The first step computes the keys and values of the source. Later steps get them as inputs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutput

from headcount.deploy import examples
from headcount.deploy.decoder import PAST, PRESENT, filled, layer_shapes, tensors_of
from headcount.deploy.graph import (
    BATCH,
    LENGTH,
    PAST_LENGTH,
    SOURCE,
    Graph,
    Shape,
    Sizes,
    Step,
    Tensors,
)
from headcount.deploy.regular import NotHeldError

SIZES = (Sizes(2, 4, 5, 7), Sizes(3, 1, 1, 12), Sizes(1, 1, 6, 1), Sizes(2, 1, 3, 9))
ENCODER, FIRST, NEXT = "encoder_model", "decoder_model", "decoder_with_past_model"
_SOURCE: Shape = (BATCH, SOURCE)


def encoder_decoder_graphs(model: PreTrainedModel) -> tuple[Graph, Graph, Graph]:
    """The graphs of the encoder, of the first step, and of all later steps."""
    if model.main_input_name != "input_ids":
        raise NotHeldError(
            f"its input is {model.main_input_name}, and of the models that generate, only those "
            "of text have graphs"
        )
    with torch.no_grad():
        ids = examples.tokens(model, 1, 2)
        encoded = model.get_encoder()(input_ids=ids).last_hidden_state
        output = model(input_ids=ids, decoder_input_ids=ids, use_cache=True)
    pasts = _past_shapes(output.past_key_values)
    shapes: dict[str, Shape] = {
        "input_ids": (BATCH, LENGTH),
        "encoder_attention_mask": _SOURCE,
        "encoder_hidden_states": (*_SOURCE, encoded.shape[-1]),
        **pasts,
    }

    def example(sizes: Sizes) -> Tensors:
        return {
            name: _example(model, name, shape, sizes, place)
            for place, (name, shape) in enumerate(shapes.items())
        }

    def source_example(sizes: Sizes) -> Tensors:
        mask = examples.mask(sizes.batch, sizes.source, left=False)
        ids = examples.tokens(model, sizes.batch, sizes.source)
        return {"input_ids": examples.padded(model, ids, mask), "attention_mask": mask}

    present = {name: name.replace(PAST, PRESENT) for name in pasts}
    of_source: dict[str, Shape] = {"input_ids": _SOURCE, "attention_mask": _SOURCE}
    of_first = {name: shape for name, shape in shapes.items() if name not in pasts}
    of_next = {name: shape for name, shape in shapes.items() if name != "encoder_hidden_states"}
    own_present = (new for name, new in present.items() if ".decoder." in name)
    return (
        Graph(
            ENCODER,
            SourceStep(model, tuple(of_source)),
            of_source,
            ("last_hidden_state",),
            source_example,
            SIZES,
        ),
        Graph(
            FIRST,
            FirstStep(model, tuple(of_first)),
            of_first,
            ("logits", *present.values()),
            example,
            SIZES,
        ),
        Graph(
            NEXT,
            NextStep(model, tuple(of_next)),
            of_next,
            ("logits", *own_present),
            example,
            SIZES,
        ),
    )


def _past_shapes(cache: EncoderDecoderCache) -> dict[str, Shape]:
    """The keys and values of every layer, of the target and of the source, by name."""
    own = layer_shapes(cache.self_attention_cache)
    source = layer_shapes(cache.cross_attention_cache)
    pasts: dict[str, Shape] = {}
    for layer, pairs in enumerate(zip(own, source, strict=True)):
        for side, axis, pair in zip(
            ("decoder", "encoder"), (PAST_LENGTH, SOURCE), pairs, strict=True
        ):
            for kind, (heads, size) in zip(("key", "value"), pair, strict=True):
                pasts[f"{PAST}.{layer}.{side}.{kind}"] = (BATCH, heads, axis, size)
    return pasts


def _example(model: PreTrainedModel, name: str, shape: Shape, sizes: Sizes, place: int) -> Tensor:
    if name == "input_ids":
        return examples.tokens(model, sizes.batch, sizes.length)
    if name == "encoder_attention_mask":
        return examples.mask(sizes.batch, sizes.source, left=False)
    lengths = {BATCH: sizes.batch, PAST_LENGTH: sizes.past, SOURCE: sizes.source}
    return examples.cache(tuple(n if isinstance(n, int) else lengths[n] for n in shape), place)


class SourceStep(Step):
    """One pass of the encoder."""

    def answer(self, given: Tensors) -> tuple[Tensor, ...]:
        """The hidden states of the source."""
        return (self.model.get_encoder()(**given, return_dict=True).last_hidden_state,)


class FirstStep(Step):
    """One pass over the first tokens of the target."""

    def answer(self, given: Tensors) -> tuple[Tensor, ...]:
        """Logits; then for every layer the keys and values of the target and of the source."""
        past = EncoderDecoderCache(DynamicCache(), DynamicCache())
        output = _decode(self.model, given, given["encoder_hidden_states"], past)
        made = output.past_key_values
        own = tensors_of(made.self_attention_cache)
        source = tensors_of(made.cross_attention_cache)
        in_turn = (
            tensor
            for layer in range(0, len(own), 2)
            for tensor in (*own[layer : layer + 2], *source[layer : layer + 2])
        )
        return (output.logits, *in_turn)


class NextStep(Step):
    """One pass over later tokens of the target."""

    def answer(self, given: Tensors) -> tuple[Tensor, ...]:
        """Logits; then for every layer the keys and values of the target."""
        own = filled(DynamicCache(), given, PAST, ".decoder")
        source = filled(DynamicCache(), given, PAST, ".encoder")
        mask = given["encoder_attention_mask"]
        # The model asks for the hidden states of the source, but uses only their length.
        nothing = torch.zeros(*mask.shape, self.model.config.hidden_size)
        output = _decode(self.model, given, nothing, EncoderDecoderCache(own, source))
        return (output.logits, *tensors_of(output.past_key_values.self_attention_cache))


def _decode(
    model: PreTrainedModel, given: Tensors, source: Tensor, past: EncoderDecoderCache
) -> Any:
    return model(
        decoder_input_ids=given["input_ids"],
        encoder_outputs=BaseModelOutput(last_hidden_state=source),  # type: ignore[arg-type]
        attention_mask=given["encoder_attention_mask"],
        past_key_values=past,
        use_cache=True,
        return_dict=True,
    )
