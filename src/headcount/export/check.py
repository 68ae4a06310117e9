"""Compare an exported graph with the model that it was made of."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from headcount.export.graph import Graph, Tensors

TOLERANCE = 1e-4
Runner = Callable[[Tensors], Tensors]


def largest_difference(graph: Graph, runner: Runner) -> float:
    """Between the outputs of the model and of the exported graph, on the graph's examples."""
    largest = 0.0
    for sizes in graph.sizes:
        given = graph.example(sizes)
        with torch.no_grad():
            expected = graph.step(**graph.by_argument(given))
        made = runner(given)
        for name, right in zip(graph.outputs, expected, strict=True):
            largest = max(largest, difference(right, made[name], given.get("attention_mask")))
    return largest


def difference(right: Tensor, made: Tensor, mask: Tensor | None) -> float:
    """The largest one between two outputs, leaving out what stands at the places of padding.

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
        gap = gap * 1 if gap.shape[2] != mask.shape[1] else _only(gap, mask[:, None, :, None])
    elif mask is not None and gap.dim() == 3 and gap.shape[1] <= mask.shape[1]:
        gap = _only(gap, mask[:, -gap.shape[1] :, None])
    return float(gap.max()) if gap.numel() else 0.0


def _only(gap: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask.bool(), gap, 0.0)
