"""The graph of a model that answers in one pass, without a cache: encoders of text and images."""

from __future__ import annotations

import inspect

import torch
from torch import Tensor
from transformers import PreTrainedModel

from headcount.batch import without_cache
from headcount.deploy import examples
from headcount.deploy.graph import BATCH, LENGTH, Graph, Shape, Sizes, Step, Tensors
from headcount.deploy.regular import NotHeldError

SIZES = (Sizes(2, 7), Sizes(1, 1), Sizes(3, 12), Sizes(4, 5))
_TEXT: Shape = (BATCH, LENGTH)


def encoder_graph(model: PreTrainedModel, tokenizer_inputs: tuple[str, ...] | None) -> Graph:
    """The graph of a whole model.

    Args:
        model: a model of text or images, in evaluation mode.
        tokenizer_inputs: the names of what its tokenizer makes; None if it has no tokenizer.
            They decide whether the graph takes `token_type_ids`.
    """
    taken = inspect.signature(model.forward).parameters
    inputs: dict[str, Shape]
    if model.main_input_name == "pixel_values":
        inputs = {"pixel_values": (BATCH, *examples.image(model, 1).shape[1:])}
    elif model.main_input_name == "input_ids":
        inputs = dict.fromkeys(("input_ids", "attention_mask"), _TEXT)
        segments = getattr(model.config, "type_vocab_size", 0) > 1 and "token_type_ids" in taken
        if segments and (tokenizer_inputs is None or "token_type_ids" in tokenizer_inputs):
            inputs["token_type_ids"] = _TEXT
    else:
        raise NotHeldError(
            f"its input is {model.main_input_name}, expected input_ids or pixel_values"
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


class OnePass(Step):
    """One pass of the whole model.

    Args:
        model: the model to call.
        names: the names of the inputs.
        outputs: the names of the tensors to take from the model's output.
    """

    def __init__(
        self, model: PreTrainedModel, names: tuple[str, ...], outputs: tuple[str, ...]
    ) -> None:
        super().__init__(model, names)
        self.outputs = outputs

    def answer(self, given: Tensors) -> tuple[Tensor, ...]:
        """The tensors of the model's output."""
        output = self.model(**given, **without_cache(self.model), return_dict=True)
        return tuple(output[name] for name in self.outputs)


def _output_names(model: PreTrainedModel, given: Tensors) -> tuple[str, ...]:
    with torch.no_grad():
        output = model(**given, **without_cache(model), return_dict=True)
    return tuple(name for name, value in output.items() if isinstance(value, Tensor))
