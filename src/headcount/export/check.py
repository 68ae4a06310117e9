"""Compare an exported graph with the model that it was made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from headcount.export.graph import Graph, Sizes, Tensors

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
