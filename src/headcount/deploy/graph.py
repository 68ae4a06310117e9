"""A graph: a function of named tensors to export, and whether the export answers as it does."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

Tensors = dict[str, Tensor]
Shape = tuple[str | int, ...]  # the name of an axis of any length, or a length that is fixed
# The names of axes of any length. transformers.js makes an empty cache from the first.
BATCH, LENGTH, SOURCE = "batch_size", "sequence_length", "encoder_sequence_length"
PAST_LENGTH, WHOLE_LENGTH = "past_sequence_length", "total_sequence_length"
Runner = Callable[[Tensors], Tensors]
TOLERANCE = 1e-4  # how much the answers of an export may differ, see `difference`


@dataclass(frozen=True)
class Graph:
    """One function to export.

    Attributes:
        name: the name of its file, without the ending; other tools expect these names.
        step: the module that computes it.
        inputs: the shape of every input, in the order of the step's arguments.
        outputs: the names of the outputs, in their order.
        example: makes inputs of given sizes, with padding if the model takes a mask.
        sizes: the sizes of the examples to check the export on; the first is also traced.
    """

    name: str
    step: Step
    inputs: Mapping[str, Shape]
    outputs: tuple[str, ...]
    example: Callable[[Sizes], Tensors]
    sizes: tuple[Sizes, ...]

    def by_argument(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The inputs' values, in their order, under the names of the step's arguments."""
        return {argument(name): values[name] for name in self.inputs}

    def axes(self) -> dict[str, dict[int, str]]:
        """The axes of every input that may have any length, by their position."""
        return {
            name: {place: axis for place, axis in enumerate(shape) if isinstance(axis, str)}
            for name, shape in self.inputs.items()
        }


class Sizes(NamedTuple):
    """Lengths of the axes of a batch.

    Attributes:
        batch: how many examples.
        length: how many tokens are given.
        past: how many tokens before them are in the cache; in an encoder-decoder, of the target.
        source: how many tokens the source of an encoder-decoder has.
    """

    batch: int
    length: int
    past: int = 0
    source: int = 0


class Step(nn.Module, ABC):
    """A module that calls a model with the tensors of a graph, by their names.

    Its forward pass has one argument for each tensor, because exporters take arguments for inputs.

    Args:
        model: the model to call.
        names: the names of the graph's inputs, in their order.
    """

    def __init__(self, model: PreTrainedModel, names: tuple[str, ...]) -> None:
        super().__init__()
        self.model = model
        arguments = {argument(name): name for name in names}

        def forward(*args: Tensor, **kwargs: Tensor) -> tuple[Tensor, ...]:
            given = dict(zip(names, args, strict=False))
            return self.answer(given | {arguments[key]: value for key, value in kwargs.items()})

        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        signature = inspect.Signature([inspect.Parameter(name, kind) for name in arguments])
        forward.__signature__ = signature  # type: ignore[attr-defined]
        self.forward = forward

    @abstractmethod
    def answer(self, given: Tensors) -> tuple[Tensor, ...]:
        """The outputs of the graph, in their order."""


def argument(name: str) -> str:
    """The name of an input as an argument in Python: names of a cache have dots."""
    return name.replace(".", "_")


def largest_difference(graph: Graph, runner: Runner, checked: Sequence[Sizes]) -> float:
    """The largest difference between the outputs of the model and of its export.

    Args:
        graph: the graph that was exported.
        runner: runs the export.
        checked: the sizes of the examples to compare on.
    """
    largest = 0.0
    for sizes in checked:
        given = graph.example(sizes)
        with torch.no_grad():
            expected = graph.step(**graph.by_argument(given))
        made = runner(given)
        for name, right in zip(graph.outputs, expected, strict=True):
            largest = max(largest, difference(right, made[name], given.get("attention_mask")))
    return largest


def difference(right: Tensor, made: Tensor, mask: Tensor | None) -> float:
    """The largest difference between two outputs, without the positions of padding.

    It is divided by the largest value of the expected output, if that is above 1.

    Args:
        right: the output that is expected.
        made: the output to compare with it.
        mask: zero at the padding of the past and of the given tokens; None for no padding.
    """
    if right.shape != made.shape:
        return float("inf")
    gap = (right - made).abs()
    gap = torch.where(gap.isnan(), torch.inf, gap)
    if mask is not None and gap.dim() == 4:  # keys or values: batch, heads, places, size
        gap = torch.where(mask[:, None, :, None] == 0, 0.0, gap)
    elif mask is not None and gap.dim() == 3:  # batch, places, size
        gap = torch.where(mask[:, -gap.shape[1] :, None] == 0, 0.0, gap)
    return float(gap.max()) / max(1.0, float(right.abs().max())) if gap.numel() else 0.0
