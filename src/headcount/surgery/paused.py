"""Forward passes that wait at a projection, so that each batch goes through the model once.

To fit the blocks of a model one after another, every batch has to come to a block, and then go on
with what the block gives after its fit. A pass is a greenlet, which keeps the model's own `forward`
where it is: no block is computed twice, and nothing about the model need be known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from typing import NamedTuple

import torch
from greenlet import getcurrent, greenlet
from torch import Tensor, nn

from headcount.surgery.outputs import Output, listening
from headcount.surgery.places import Batch

Changed = dict[str, Tensor]  # parameters by name


class Call(NamedTuple):
    """One call of a projection in a forward pass, as its module answers it."""

    output: Output
    values: Tensor
    answer: Tensor


class Pass:
    """A forward pass of one batch; go on with it under `pausing` alone.

    Args:
        model: in evaluation, without gradients.
        batch: what it takes.
        changed: parameters of projections in place of their own, as they are when it gets there.
    """

    def __init__(self, model: nn.Module, batch: Batch, changed: Changed) -> None:
        self._changed = changed
        self._running = greenlet(lambda: model(**batch))
        self._running.gr_context = copy_context()  # else variables of the caller's are not set
        self._waits: Call | None = None

    def go_to(self, output: Output, calls: int) -> list[Call]:
        """Go on to the last of so many calls of a projection, and wait there; gives all of them."""
        heard: list[Call] = []
        while len(heard) < calls:
            self._waits = self._running.switch(*self._answer())
            if self._waits is None:
                raise RuntimeError(f"{output.name} was called {len(heard)} times, not {calls}")
            if self._waits.output.name == output.name:
                heard.append(self._waits)
        return heard

    def _answer(self) -> list[Tensor]:
        """What the call that it waits at gives; nothing before the first."""
        if self._waits is None:
            return []
        output, values, answer = self._waits
        weight = self._changed.get(f"{output.name}.weight")
        bias = self._changed.get(f"{output.name}.bias")
        if weight is None and bias is None:
            return [answer]
        rows = output.weight() if weight is None else output.by_rows(weight)
        own = output.projection.bias if bias is None else bias
        return [nn.functional.linear(values, rows, own)]

    def stop(self) -> None:
        """Leave the model where it is."""
        if self._running:
            self._running.throw()


@contextmanager
def pausing(outputs: Iterable[Output]) -> Iterator[None]:
    """Have passes wait wherever one of these projections answers; call the model no other way."""

    def wait(output: Output, values: Tensor, answer: Tensor) -> Tensor:
        gone_on_with: Tensor = getcurrent().parent.switch(Call(output, values, answer))
        return gone_on_with

    with torch.no_grad(), listening(list(outputs), wait):
        yield
