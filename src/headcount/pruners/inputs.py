"""What goes into the output projections of a model, in sums over the tokens of its data.

The inputs of an output projection are what its heads say, before they are weighed. One forward pass
per batch adds them up, without gradients and without labels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack

import torch
from torch import Tensor, nn

from headcount.batch import Batch, evaluating, without_answers
from headcount.errors import HeadcountError
from headcount.surgery.offloaded import fetched
from headcount.surgery.outputs import Output, listening, not_finite, tokens_among
from headcount.surgery.paused import Changed, Layers, Pass, look_round, pausing

_TO_BE = {"scored": "score", "fitted": "fit"}  # what sums are for, as errors say it


class InputSums:
    """Sums over the tokens that reach one output projection, in float64.

    Args:
        output: the projection.
        products: also add up the products of every two inputs, which takes the square of the
            memory. Without them, only the square of each input is known.

    Attributes:
        count: tokens so far, without padding.
        total: the sum of each input.
        squares: the sum of each input's square.
        products: XᵀX, the sum of x xᵀ; empty if it was not asked for.
    """

    def __init__(self, output: Output, products: bool = False) -> None:
        self.output, self.count = output, 0
        width = int(output.weight().shape[1])
        self.total = torch.zeros(width, dtype=torch.float64)
        self._squares = torch.zeros(width, dtype=torch.float64)
        side = width if products else 0
        self.products = torch.zeros(side, side, dtype=torch.float64)

    def add(self, values: Tensor) -> None:
        """Add the inputs of a batch, a row per token."""
        values = values.cpu().double()  # not all devices have float64
        self.count += len(values)
        self.total += values.sum(0)
        if len(self.products):
            self.products.addmm_(values.T, values)
        else:
            self._squares += values.square().sum(0)

    @property
    def squares(self) -> Tensor:
        """The sum of each input's square."""
        return self.products.diagonal() if len(self.products) else self._squares

    def refuse_overflow(self, done: str) -> None:
        """Refuse sums in which a number was too large for the model's type."""
        if not self.squares.isfinite().all():
            raise not_finite(self.output, done)

    def weight(self) -> Tensor:
        """The weight of the projection in float64, a row per output."""
        with fetched(self.output.projection):
            return self.output.weight().cpu().double()


def input_sums(
    model: nn.Module,
    outputs: Sequence[Output],
    batches: Iterable[Batch],
    products: bool = False,
    done: str = "scored",
) -> list[InputSums]:
    """The sums of each of these projections, over all tokens of the batches.

    Args:
        model: it is run in evaluation mode, and not changed.
        outputs: the projections to listen to.
        batches: what the model takes. Padding does not count; see `tokens_among`.
        products: see `InputSums`.
        done: what is to be done to the heads, for errors.

    Raises:
        HeadcountError: there is no batch, or a value is too large for the model's type.
    """
    found = {output.name: InputSums(output, products) for output in outputs}
    batch: Batch = {}

    def hear(output: Output, values: Tensor, answer: Tensor) -> None:
        found[output.name].add(tokens_among(values, model, batch, output.block.kind))

    with torch.no_grad(), evaluating(model), listening(outputs, hear):
        for batch in batches:
            model(**without_answers(model, batch))
    if not batch:
        raise _no_data(done)
    for sums in found.values():
        sums.refuse_overflow(done)
    return list(found.values())


def inputs_in_order(
    model: nn.Module,
    outputs: Sequence[Output],
    batches: Iterable[Batch],
    replace: Callable[[InputSums], Tensor],
    done: str = "scored",
) -> None:
    """Find the sums of one projection after another, each with those before it replaced.

    Every batch goes through the model once and waits at each projection for the others. So the
    hidden states of all batches are in memory at once, those of one layer.

    Args:
        model: it is run in evaluation mode, and not changed.
        outputs: the projections to listen to.
        batches: see `input_sums`.
        replace: gets the sums of a projection, with products. It returns the weight with which the
            model goes on, a row per output. Biases stay as they are.
        done: see `input_sums`.

    Raises:
        HeadcountError: see `input_sums`.
    """
    sample = list(batches)
    if not sample:
        raise _no_data(done)
    changed: Changed = {}
    with torch.no_grad(), evaluating(model):
        order, layers, _ = look_round(model, outputs, sample[0])
        with pausing(model, outputs, layers, ()), ExitStack() as running:
            passes = _begun(running, model, sample, changed, layers)
            for output, calls in order:
                sums = InputSums(output, products=True)
                for batch, begun in zip(sample, passes, strict=True):
                    for call in begun.go_to(output, calls):
                        sums.add(tokens_among(call.values, model, batch, output.block.kind))
                        device = call.values.device
                sums.refuse_overflow(done)
                if sums.count:
                    weight = output.by_rows(replace(sums)).to(device, output.weight().dtype)
                    changed[f"{output.name}.weight"] = weight.contiguous()
                if calls > 1:  # its earlier calls have changed too, and what came between them
                    running.close()
                    passes = _begun(running, model, sample, changed, layers)


def _begun(
    running: ExitStack,
    model: nn.Module,
    sample: Sequence[Batch],
    changed: Changed,
    layers: Layers,
) -> list[Pass]:
    """A pass per batch, of the model as it becomes; the stack stops them."""
    passes = [Pass(model, batch, changed, layers, {}) for batch in sample]
    for begun in passes:
        running.callback(begun.stop)
    return passes


def _no_data(done: str) -> HeadcountError:
    return HeadcountError(
        f"there is no data to {_TO_BE[done]} the heads on; give at least one batch"
    )
