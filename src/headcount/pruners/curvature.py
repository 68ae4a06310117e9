"""How much the loss rises when the outputs of a block's heads change.

This is the second-order view of Optimal Brain Surgeon (Hassibi and Stork 1993). The curvature of an
output projection is a product of two small matrices (Martens and Grosse 2015): the second moment of
its inputs, and that of the loss's gradient at its outputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from headcount.batch import Batch, batch_size
from headcount.errors import HeadcountError
from headcount.pruners.backward import Backward
from headcount.surgery.offloaded import fetched
from headcount.surgery.outputs import Output, not_finite, tokens_among


class Fit(NamedTuple):
    """An output projection that makes up for heads: its weight, a row per output, and its bias."""

    weight: Tensor
    bias: Tensor | None


class Curvature:
    """The curvature of the loss around one output projection, from sums in float64."""

    def __init__(self, output: Output) -> None:
        self.output = output
        self.places = self.examples = 0
        self.size = 1  # examples of the batch that goes through the model now
        self._inputs = torch.zeros(self.width, self.width, dtype=torch.float64)
        out = output.weight().shape[0]
        self._gradients = torch.zeros(out, out, dtype=torch.float64)

    @property
    def width(self) -> int:
        """Inputs, and one more for a bias."""
        return int(self.output.weight().shape[1]) + self.output.has_bias

    @property
    def bytes(self) -> int:
        """What the sums take."""
        return self._inputs.nbytes + self._gradients.nbytes

    def add_inputs(self, values: Tensor) -> None:
        """Add the inputs of a batch, a row per position."""
        values = values.cpu().double()  # not all devices have float64
        if self.output.has_bias:
            values = torch.cat([values, values.new_ones(len(values), 1)], 1)
        self.places += len(values)
        self._inputs.addmm_(values.T, values)

    def add_gradients(self, gradients: Tensor, factor: float = 1.0) -> None:
        """Add gradients at the outputs, a row per position, times a factor."""
        gradients = gradients.cpu().double()
        self._gradients.addmm_(gradients.T, gradients, alpha=factor**2)

    def refuse_overflow(self) -> None:
        """Refuse sums in which a number was too large for the model's type."""
        if not (self._inputs.isfinite().all() and self._gradients.isfinite().all()):
            raise not_finite(self.output, "scored")

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
        weight, gradients = self._weight(), self.gradients
        inverse = torch.linalg.inv(self._damped(ridge))
        # The weights enter the costs only as Wᵀ G W, which follows each removal without them.
        felt = weight.T @ gradients @ weight
        return 0.5 * removed_in_turn(felt, inverse, number, head_size)

    def fitted(self, kept: Sequence[int], ridge: float) -> Fit:
        """The projection with which some of its inputs come closest to what all of them gave.

        Args:
            kept: these inputs; the others get a weight of 0.
            ridge: see `removal_costs`.
        """
        whole = self._weight()
        stays = torch.zeros(self.width, dtype=torch.bool)
        stays[list(kept)] = True
        stays[len(self.output.kept) :] = True  # the bias
        found = torch.where(stays, whole, 0.0)
        if self.places and stays.any() and not stays.all():
            damped = self._damped(ridge)
            lost = damped[stays][:, ~stays] @ whole[:, ~stays].T
            lower = torch.linalg.cholesky(damped[stays][:, stays])
            found[:, stays] += torch.cholesky_solve(lost, lower).T
        return Fit(found[:, :-1], found[:, -1]) if self.output.has_bias else Fit(found, None)

    def _weight(self) -> Tensor:
        """The weight, with a column more for a bias."""
        with fetched(self.output.projection):
            weight = self.output.weight().cpu().double()
            if not self.output.has_bias:
                return weight
            return torch.cat(
                [weight, self.output.projection.bias.detach().cpu().double()[:, None]], 1
            )

    def _damped(self, ridge: float) -> Tensor:
        """The second moment of the inputs, with a ridge; see `removal_costs`."""
        inputs = self.inputs
        unit = inputs.diagonal()[: len(self.output.kept)].mean() + torch.finfo(inputs.dtype).tiny
        return inputs + ridge * unit * torch.eye(len(inputs), dtype=inputs.dtype)


def removed_in_turn(felt: Tensor, inverse: Tensor, number: int, size: int) -> Tensor:
    """What each head costs when it goes, the cheapest first, and the others make up for it.

    A head never costs less than one that went before it.

    Args:
        felt: Wᵀ G W, a row and a column per input, those of the heads first.
        inverse: A⁻¹, of the second moment of the inputs.
        number: how many heads there are.
        size: inputs of each.
    """
    here, found, highest = list(range(number)), torch.zeros(number, dtype=torch.float64), 0.0
    while here:
        costs = _costs(felt, inverse, len(here), size)
        place = min(range(len(here)), key=costs.__getitem__)
        # Slightly more, because equal scores would be ranked by the heads' numbers.
        highest = max(highest * (1 + 1e-9), costs[place])
        found[here.pop(place)] = highest
        felt, inverse = _without(felt, inverse, slice(place * size, (place + 1) * size))
    return found


def _costs(felt: Tensor, inverse: Tensor, number: int, size: int) -> list[float]:
    """tr(W_hᵀ G W_h (A⁻¹_hh)⁻¹) of each head h."""
    own, inner = (_diagonal_blocks(matrix, number, size) for matrix in (felt, inverse))
    costs: list[float] = (own * torch.linalg.inv(inner).mT).sum((1, 2)).tolist()
    return costs


def _diagonal_blocks(matrix: Tensor, number: int, size: int) -> Tensor:
    whole: Tensor = matrix[: number * size, : number * size].unflatten(0, (number, size))
    by_head: Tensor = whole.unflatten(2, (number, size))
    return by_head.diagonal(dim1=0, dim2=2).permute(2, 0, 1)


def _without(felt: Tensor, inverse: Tensor, head: slice) -> tuple[Tensor, Tensor]:
    """The matrices of the heads that stay, whose weights make up for one that goes.

    W becomes W - W_h S with S = (A⁻¹_hh)⁻¹ A⁻¹_h, and what it feels follows from that.
    """
    stays = torch.ones(len(inverse), dtype=torch.bool)
    stays[head] = False
    rows = inverse[head][:, stays]
    solved = torch.linalg.solve(inverse[head, head], rows)
    across = felt[head][:, stays]
    half = across - 0.5 * felt[head, head] @ solved
    felt, inverse = felt[stays][:, stays], inverse[stays][:, stays]
    both = solved.T @ half
    return felt - both - both.T, inverse - rows.T @ solved


def curvatures(
    model: nn.Module, outputs: Sequence[Output], batches: Iterable[Batch]
) -> list[Curvature]:
    """The curvature around each of these projections, averaged over batches with labels.

    The model's loss must be a mean over the batch. Its parameters get no gradients.
    """
    found = [Curvature(output) for output in outputs]
    back = Backward(model, besides=sum(curvature.bytes for curvature in found))
    examples = 0
    with back.opened(), _heard(found, back):
        for batch in batches:
            for curvature in found:
                # The loss is a mean over examples: the gradient of one is `size` times as large.
                curvature.size = batch_size(batch)
            for _ in back.passes(batch):
                pass
            examples += batch_size(batch)
    if not examples:
        raise HeadcountError("there is no data to score the heads on; give at least one batch")
    for curvature in found:
        curvature.examples = examples
        curvature.refuse_overflow()
    return found


@contextmanager
def _heard(found: Sequence[Curvature], back: Backward) -> Iterator[None]:
    """Add up the inputs of each projection as it is called, and the gradients as they come back."""

    def hook(curvature: Curvature) -> Any:
        kind = curvature.output.block.kind

        def hear(module: nn.Module, args: tuple[Any, ...], answer: Tensor) -> Tensor:
            # Gradients go back as far as the leaves, so every projection has one. An answer may
            # require a gradient without any: gradient checkpointing lets embeddings do so.
            answer = answer + back.leaf(answer.new_zeros(()))
            if not back.again:
                batch = back.batch
                curvature.add_inputs(tokens_among(args[0].detach(), back.model, batch, kind))

                def feel(gradient: Tensor) -> None:
                    rows = tokens_among(gradient, back.model, batch, kind)
                    curvature.add_gradients(rows, curvature.size / back.scale)

                answer.register_hook(feel)
            return answer

        return hear

    with ExitStack() as hooks:
        for curvature in found:
            projection = curvature.output.projection
            hooks.enter_context(projection.register_forward_hook(hook(curvature)))
        yield
