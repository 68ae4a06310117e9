"""How much the loss rises when the outputs of a block's heads change.

This is the second-order view of Optimal Brain Surgeon (Hassibi and Stork 1993). The curvature of an
output projection is a product of two small matrices (Martens and Grosse 2015): the second moment of
its inputs, and that of the loss's gradient at its outputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from headcount.batch import Batch, batch_size, evaluating, loss_of
from headcount.errors import HeadcountError
from headcount.pruners.base import frozen
from headcount.surgery.outputs import Output, tokens_among


class Curvature:
    """The curvature of the loss around one output projection, from sums in float64."""

    def __init__(self, output: Output) -> None:
        self.output = output
        self.places = self.examples = 0
        self._inputs = self._gradients = torch.zeros((), dtype=torch.float64)

    def add(self, values: Tensor, gradients: Tensor) -> None:
        """Add a batch: inputs, and gradients at the outputs, a row per position."""
        values, gradients = values.cpu().double(), gradients.cpu().double()
        if self.output.has_bias:
            values = torch.cat([values, values.new_ones(len(values), 1)], 1)
        self.places += len(values)
        self._inputs = self._inputs + values.T @ values
        self._gradients = self._gradients + gradients.T @ gradients

    @property
    def inputs(self) -> Tensor:
        """The mean over positions of x xᵀ, with a 1 at the end of x if there is a bias."""
        return self._inputs / self.places

    @property
    def gradients(self) -> Tensor:
        """The mean over examples of the sum over positions of g gᵀ."""
        return self._gradients / self.examples

    def removal_costs(self, head_size: int, ridge: float) -> Tensor:
        """By how much the loss of an example rises with each head, as the block loses them in turn.

        The head that costs least goes first, and the weights of the others change to make up for it
        as well as they can. A head never costs less than one that went before it. So the K heads
        with the highest costs in all blocks are those that are left after such a removal.

        Args:
            head_size: how many inputs belong to one head, or to a group that goes as one.
            ridge: the penalty on changing weights, in units of the mean square of the values.
        """
        number = len(self.output.kept) // head_size
        if not self.places:  # the batches never reach this block
            return torch.zeros(number, dtype=torch.float64)
        weight = self.output.weight().cpu().double()
        inputs, gradients = self.inputs, self.gradients
        if self.output.has_bias:
            bias = self.output.projection.bias.detach().cpu().double()
            weight = torch.cat([weight, bias[:, None]], 1)
        unit = inputs.diagonal()[: number * head_size].mean() + torch.finfo(inputs.dtype).tiny
        identity = torch.eye(len(inputs), dtype=inputs.dtype)
        inverse = torch.linalg.inv(inputs + ridge * unit * identity)
        here, found, highest = list(range(number)), torch.zeros(number, dtype=torch.float64), 0.0
        while here:
            costs = [
                _cost(weight, inverse, gradients, slice(start, start + head_size))
                for start in range(0, len(here) * head_size, head_size)
            ]
            place = min(range(len(here)), key=costs.__getitem__)
            # Slightly more, because equal scores would be ranked by the heads' numbers.
            highest = max(highest * (1 + 1e-9), costs[place])
            found[here.pop(place)] = highest
            weight, inverse = _without(
                weight, inverse, slice(place * head_size, (place + 1) * head_size)
            )
        return found


def _cost(weight: Tensor, inverse: Tensor, gradients: Tensor, head: slice) -> float:
    own = weight[:, head]
    return 0.5 * float(((gradients @ own) * (own @ torch.linalg.inv(inverse[head, head]))).sum())


def _without(weight: Tensor, inverse: Tensor, head: slice) -> tuple[Tensor, Tensor]:
    """Weights that make up for a head, and the inverse of the inputs' matrix without it."""
    rows = inverse[head]
    solved = torch.linalg.solve(inverse[head, head], rows)
    stays = torch.ones(len(inverse), dtype=torch.bool)
    stays[head] = False
    weight, inverse = weight - weight[:, head] @ solved, inverse - rows.T @ solved
    return weight[:, stays], inverse[stays][:, stays]


def curvatures(
    model: nn.Module, outputs: Sequence[Output], batches: Iterable[Batch]
) -> list[Curvature]:
    """The curvature around each of these projections, averaged over batches with labels.

    The model's loss must be a mean over the batch. Its parameters get no gradients.
    """
    found = [Curvature(output) for output in outputs]
    with evaluating(model), frozen(model, ["*"]):
        for batch in batches:
            size = batch_size(batch)
            with _heard(found) as heard:
                loss = loss_of(model, batch)
                leaves = [leaf for _, _, leaf in heard]
                felt = torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True)
            for (curvature, values, _), gradient in zip(heard, felt, strict=True):
                # The loss is a mean over examples: the gradient of one is `size` times as large.
                both = torch.cat([values, gradient * size], -1)
                rows = tokens_among(both, model, batch, curvature.output.block.kind)
                width = values.shape[-1]
                curvature.add(rows[:, :width], rows[:, width:])
            for curvature in found:
                curvature.examples += size
    if not any(curvature.examples for curvature in found):
        raise HeadcountError("there is no data to score the heads on; give at least one batch")
    return found


Heard = list[tuple[Curvature, Tensor, Tensor]]


@contextmanager
def _heard(found: Sequence[Curvature]) -> Iterator[Heard]:
    """The input of each call of a projection, and a leaf of zeros that is added to its output."""
    heard: Heard = []

    def hook(curvature: Curvature) -> Any:
        def hear(module: nn.Module, args: tuple[Any, ...], answer: Tensor) -> Tensor:
            leaf = torch.zeros_like(answer, requires_grad=True)
            heard.append((curvature, args[0].detach(), leaf))
            return answer + leaf

        return hear

    with ExitStack() as hooks:
        for curvature in found:
            projection = curvature.output.projection
            hooks.enter_context(projection.register_forward_hook(hook(curvature)))
        yield heard
