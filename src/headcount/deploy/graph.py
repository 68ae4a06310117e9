"""What is exported: functions of named tensors, with axes that may be of any length."""

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


class Sizes(NamedTuple):
    """Lengths of the axes of a batch.

    Attributes:
        batch: examples.
        length: tokens that are given.
        past: tokens before them, of which the cache knows; of an encoder-decoder, at the target.
        source: tokens of the source of an encoder-decoder.
    """

    batch: int
    length: int
    past: int = 0
    source: int = 0


class Step(nn.Module, ABC):
    """Calls a model with the tensors of a graph, by their names.

    Its forward pass has one argument for each of them: the exporters know inputs by arguments.
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


@dataclass(frozen=True)
class Graph:
    """One function to export.

    Attributes:
        name: of its file, as other tools expect it.
        step: what it computes.
        inputs: shape of every input, in the order of the step's arguments.
        outputs: their names.
        example: makes inputs of these sizes, with padding where the model knows it.
        sizes: of the examples that it is checked on; the first is the one it is traced with.
    """

    name: str
    step: Step
    inputs: Mapping[str, Shape]
    outputs: tuple[str, ...]
    example: Callable[[Sizes], Tensors]
    sizes: tuple[Sizes, ...]

    def by_argument(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Values of the inputs, in their order, under the names that a program in Python has."""
        return {argument(name): values[name] for name in self.inputs}

    def axes(self) -> dict[str, dict[int, str]]:
        """The axes of every input that may be of any length."""
        return {
            name: {place: axis for place, axis in enumerate(shape) if isinstance(axis, str)}
            for name, shape in self.inputs.items()
        }


def argument(name: str) -> str:
    """The name of an input, fit for an argument: those of a cache have dots."""
    return name.replace(".", "_")


TOLERANCE = 1e-4
Runner = Callable[[Tensors], Tensors]


def largest_difference(graph: Graph, runner: Runner, checked: Sequence[Sizes]) -> float:
    """Between the outputs of the model and of the exported graph, on examples of these sizes."""
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
    """The largest one between two outputs, relative to them above 1, without places of padding.

    Args:
        right: what is expected.
        made: what there is.
        mask: zero at the padding of the past and of the tokens that were given.
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
