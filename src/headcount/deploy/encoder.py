"""The graph of a model that answers in one pass: encoders with any head, images, no cache."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from transformers import PreTrainedModel

from headcount.deploy import examples
from headcount.deploy.decoder import decoder_graph
from headcount.deploy.encoder_decoder import encoder_decoder_graphs
from headcount.deploy.graph import Graph, Shape, Sizes, Step, Tensors
from headcount.errors import HeadcountError
from headcount.eval_mode import without_cache

SIZES = (Sizes(2, 7), Sizes(1, 1), Sizes(3, 12), Sizes(4, 5))
_TEXT: Shape = ("batch", "sequence")


class OnePass(Step):
    """Everything goes in and the answer comes out."""

    def __init__(
        self, model: PreTrainedModel, names: tuple[str, ...], outputs: tuple[str, ...]
    ) -> None:
        super().__init__(model, names)
        self.outputs = outputs

    def answer(self, given: Tensors) -> tuple[Tensor, ...]:
        """The tensors of the model's output."""
        output = self.model(**given, **without_cache(self.model), return_dict=True)
        return tuple(output[name] for name in self.outputs)


def encoder_graph(model: PreTrainedModel, tokenizer_inputs: tuple[str, ...] | None) -> Graph:
    """The graph of a whole model.

    Args:
        model: the model.
        tokenizer_inputs: what its tokenizer makes, if it has one; it decides whether the graph
            takes the numbers of the segments.
    """
    taken = inspect.signature(model.forward).parameters
    inputs: dict[str, Shape]
    if model.main_input_name == "pixel_values":
        inputs = {"pixel_values": ("batch", *examples.image(model, 1).shape[1:])}
    elif model.main_input_name == "input_ids":
        inputs = dict.fromkeys(("input_ids", "attention_mask"), _TEXT)
        segments = getattr(model.config, "type_vocab_size", 0) > 1 and "token_type_ids" in taken
        if segments and (tokenizer_inputs is None or "token_type_ids" in tokenizer_inputs):
            inputs["token_type_ids"] = _TEXT
    else:
        raise HeadcountError(
            f"{type(model).__name__} cannot be exported: its input is {model.main_input_name}, "
            "expected input_ids or pixel_values; export a model of text or images"
        )

    def example(sizes: Sizes) -> Tensors:
        if "pixel_values" in inputs:
            return {"pixel_values": examples.image(model, sizes.batch)}
        mask = examples.mask(sizes.batch, sizes.length, left=False)
        ids = examples.tokens(model, sizes.batch, sizes.length)
        made = {"input_ids": examples.padded(model, ids, mask), "attention_mask": mask}
        if "token_type_ids" in inputs:
            made["token_type_ids"] = mask * (torch.arange(sizes.length) >= sizes.length // 2)
        return made

    outputs = _output_names(model, example(SIZES[0]))
    return Graph("model", OnePass(model, tuple(inputs), outputs), inputs, outputs, example, SIZES)


def _output_names(model: PreTrainedModel, given: Tensors) -> tuple[str, ...]:
    with torch.no_grad():
        output = model(**given, **without_cache(model), return_dict=True)
    return tuple(name for name, value in output.items() if isinstance(value, Tensor))


def graphs_of(
    model: PreTrainedModel, tokenizer_inputs: tuple[str, ...] | None = None
) -> tuple[Graph, ...]:
    """The graphs of a model, named as the exports of Hugging Face's `optimum` are.

    Args:
        model: pruned or not, in evaluation mode.
        tokenizer_inputs: what its tokenizer makes, if it has one.

    Raises:
        HeadcountError: a model of this kind cannot be exported.
    """
    try:
        if not model.can_generate():
            return (encoder_graph(model, tokenizer_inputs),)
        if model.config.is_encoder_decoder:
            return encoder_decoder_graphs(model)
        return (decoder_graph(model),)
    except HeadcountError:
        raise
    except Exception as error:  # whatever a family says that needs more
        raise HeadcountError(
            f"{type(model).__name__} cannot be exported: it does not answer to "
            f"{model.main_input_name} alone; export a model of plain text or of images"
        ) from error


@contextmanager
def plain_attention(model: PreTrainedModel) -> Iterator[None]:
    """Let a model attend by plain products and sums.

    What fused attention says of a place that sees nothing (padding on the left) differs between
    engines, down to not-a-number; plain attention says the same everywhere.
    """
    chosen = model.config._attn_implementation
    model.set_attn_implementation("eager")
    try:
        yield
    finally:
        model.set_attn_implementation(chosen)
