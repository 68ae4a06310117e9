"""Programs of `torch.export`: write a graph as a `.pt2` file, and run it."""

from __future__ import annotations

import warnings
from pathlib import Path

import torch
from torch.export import Dim

from headcount.deploy.graph import Graph, Sizes, Tensors, argument

SUFFIX = ".pt2"
LEAST = 4  # tokens of past and present, in the program of a decoder


def allowed_sizes(graph: Graph) -> tuple[Sizes, ...]:
    """Sizes of the graph's examples that its program takes.

    torch takes an axis of unknown length to be two or longer. It lets a length of one or none
    pass, but not in a sum, as that of past and present: pad a shorter prompt on the left.
    """
    summed = any("past_and_sequence" in shape for shape in graph.inputs.values())
    return tuple(s for s in graph.sizes if not summed or s.past + s.length >= LEAST)


def write_torch(graph: Graph, file: Path) -> None:
    """Trace a graph and write it."""
    axes = {name: dict.fromkeys(places, Dim.DYNAMIC) for name, places in graph.axes().items()}
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch about its own insides
        program = torch.export.export(
            graph.step,
            (),
            kwargs=graph.by_argument(graph.example(graph.sizes[0])),
            dynamic_shapes=graph.by_argument(axes),
        )
        torch.export.save(program, str(file))


class TorchRunner:
    """Runs one file.

    Args:
        file: of one graph.
        inputs: their names.
        outputs: their names.
    """

    def __init__(self, file: Path, inputs: list[str], outputs: list[str]) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.program = torch.export.load(str(file)).module()
        self.inputs, self.outputs = inputs, outputs

    @torch.no_grad()
    def __call__(self, given: Tensors) -> Tensors:
        """The outputs by name; inputs that the graph does not have are left out."""
        made = self.program(**{argument(name): given[name] for name in self.inputs})
        return dict(zip(self.outputs, made, strict=True))
