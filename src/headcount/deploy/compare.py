"""Does a written model answer as the model that it was written from?

Several programs load a file that they cannot run, and answer something else without a word. So
every writer compares before it says that it is done.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from headcount.batch import evaluating
from headcount.deploy import examples
from headcount.deploy.graph import difference
from headcount.deploy.regular import NotHeldError
from headcount.heads.probe_inputs import small_inputs
from headcount.surgery.trial import floats

TOLERANCE = 1e-5  # of the largest output, in float32
# Half precision also rounds what is no weight: `model.half()` has other rotary angles than a model
# that was loaded in it.
TOLERANCE_IN_HALF = 1e-2
Inputs = dict[str, Any]


def largest_gap(model: PreTrainedModel, other: PreTrainedModel) -> float:
    """The largest difference between the outputs of two models, relative to outputs above 1.

    Both compute in float32, whatever their weights are stored in: some processors cannot compute
    in less, and rounding would hide mistakes.

    Args:
        model: the model as it is.
        other: what is to answer the same.
    """
    largest = 0.0
    compared = False
    with (
        in_float32(model),
        in_float32(other),
        evaluating(model),
        evaluating(other),
        torch.no_grad(),
    ):
        for inputs in checked_inputs(model):
            expected = answers(model, inputs)
            if not expected:  # it does not take them, or answers with images only
                continue
            found = answers(other, inputs)
            compared = True
            if found is None or len(found) != len(expected):
                return float("inf")
            mask = None if _has_source(model) else inputs.get("attention_mask")
            pairs = zip(expected, found, strict=True)
            largest = max([largest, *(difference(one, two, mask) for one, two in pairs)])
    if not compared:
        raise NotHeldError(f"{type(model).__name__} does not answer to any input that we can make")
    return largest


def tolerance_of(model: PreTrainedModel) -> float:
    """The largest difference that is still rounding."""
    single = all(tensor.dtype == torch.float32 for tensor in _float_tensors(model))
    return TOLERANCE if single else TOLERANCE_IN_HALF


@contextmanager
def in_float32(model: PreTrainedModel) -> Iterator[None]:
    """Let a model compute in float32 until the block ends; its weights lose nothing."""
    before = [(tensor, tensor.dtype) for tensor in _float_tensors(model)]
    for tensor, _ in before:
        tensor.data = tensor.data.to(torch.float32)
    try:
        yield
    finally:
        for tensor, dtype in before:
            tensor.data = tensor.data.to(dtype)


def _float_tensors(model: PreTrainedModel) -> list[Tensor]:
    every = [*model.parameters(), *model.buffers()]
    return [t for t in every if t.is_floating_point() and t.dtype != torch.float64]


def checked_inputs(model: PreTrainedModel) -> Sequence[Inputs]:
    """Inputs to compare on: tokens with padding for text, small inputs for everything else."""
    text = model.config.get_text_config()
    reads = model.main_input_name == "input_ids" and hasattr(text, "vocab_size")
    if not reads:
        return list(small_inputs(model))
    made = [] if text is model.config else list(small_inputs(model))  # it may need images too
    for batch, length in ((2, 9), (1, 17)):
        mask = examples.mask(batch, length, left=model.can_generate() and not _has_source(model))
        ids = examples.padded(model, examples.tokens(model, batch, length), mask)
        made.append(_as_taken(model, ids, mask))
    return made


def _has_source(model: PreTrainedModel) -> bool:
    return bool(model.config.is_encoder_decoder)


def _as_taken(model: PreTrainedModel, ids: Tensor, mask: Tensor) -> Inputs:
    """Tokens in the form that a class takes them in."""
    if "MultipleChoice" in type(model).__name__:  # an example is a row of choices
        return {"input_ids": ids[None], "attention_mask": mask[None]}
    end = getattr(model.config, "eos_token_id", None)
    if _has_source(model) and isinstance(end, int):  # classes answer at the last end of a text
        ids = ids.masked_fill(ids == end, (end + 1) % model.config.get_text_config().vocab_size)
        ids[torch.arange(len(ids)), mask.sum(1) - 1] = end
    inputs = {"input_ids": ids, "attention_mask": mask}
    if _has_source(model) and "Classification" not in type(model).__name__:
        inputs["decoder_input_ids"] = ids[:, :5].contiguous()
    return inputs


def answers(model: PreTrainedModel, inputs: Inputs) -> list[Tensor] | None:
    """The outputs that are numbers; None if the model cannot take the inputs."""
    try:
        output = model(**inputs)
    except Exception:  # families that need more inputs raise errors of many types
        return None
    # Attention weights and caches have a shape that depends on the heads.
    return [tensor.float() for tensor in floats(output) if tensor.dim() != 4]
