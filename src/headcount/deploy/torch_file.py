"""Programs of `torch.export`: write a graph into a `.pt2` file, and run it."""

from __future__ import annotations

import warnings
from io import BytesIO
from pathlib import Path

import torch
from torch.export import Dim

from headcount.deploy.graph import WHOLE_LENGTH, Graph, Sizes, Tensors, argument

SUFFIX = ".pt2"
LEAST = 4  # the fewest tokens, past and present together, that the program of a decoder takes


def write_torch(graph: Graph, file: Path) -> None:
    """Trace a graph and write it."""
    axes = {name: dict.fromkeys(places, Dim.DYNAMIC) for name, places in graph.axes().items()}
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns about its own code
        program = torch.export.export(
            graph.step,
            (),
            kwargs=graph.by_argument(graph.example(graph.sizes[0])),
            dynamic_shapes=graph.by_argument(axes),
        )
        # Into memory first: on a full disk torch would end the process.
        made = BytesIO()
        torch.export.save(program, made)
    file.write_bytes(made.getbuffer())


def allowed_sizes(graph: Graph) -> tuple[Sizes, ...]:
    """The sizes of a graph's examples that its program takes.

    torch assumes that an axis of unknown length is at least 2 long. It accepts shorter ones, except
    in a sum such as past + present. So a decoder's short prompts must be padded on the left.
    """
    summed = any(WHOLE_LENGTH in shape for shape in graph.inputs.values())
    return tuple(s for s in graph.sizes if not summed or s.past + s.length >= LEAST)


class TorchRunner:
    """Runs the program in one file.

    Args:
        file: the `.pt2` file.
        inputs: the names of the graph's inputs, in their order.
        outputs: the names of its outputs, in their order.
    """

    def __init__(self, file: Path, inputs: list[str], outputs: list[str]) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.program = torch.export.load(str(file)).module()
        self.inputs, self.outputs = inputs, outputs

    @torch.no_grad()
    def __call__(self, given: Tensors) -> Tensors:
        """The outputs by name; values for inputs that the graph does not have are ignored."""
        made = self.program(**{argument(name): given[name] for name in self.inputs})
        return dict(zip(self.outputs, made, strict=True))
