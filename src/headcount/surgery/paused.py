"""Forward passes that wait at a projection, so that each batch goes through the model once.

To fit the blocks of a model one after another, every batch has to reach a block, and then continue
with what the block gives after its fit. A pass is a greenlet, which suspends the model's own
`forward`: no block is computed twice, and the code needs to know nothing about the model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from typing import NamedTuple

import torch
from greenlet import getcurrent, greenlet
from torch import Tensor, nn

from headcount.batch import Batch, without_cache
from headcount.surgery.outputs import Output, listening

Changed = dict[str, Tensor]  # parameters by name


class Call(NamedTuple):
    """One call of a projection in a forward pass: its input, and its module's output."""

    output: Output
    values: Tensor
    answer: Tensor


class Pass:
    """A forward pass of one batch; use it inside `pausing` only.

    Args:
        model: in evaluation mode, without gradients.
        batch: the arguments of the forward pass.
        changed: parameters that replace those of projections. They are read when the pass leaves
            a projection, so they may be added while it waits.
    """

    def __init__(self, model: nn.Module, batch: Batch, changed: Changed) -> None:
        self._model, self._batch, self._changed = model, batch, changed
        self._begin()

    def _begin(self) -> None:
        self._running = greenlet(self._run)
        self._running.gr_context = copy_context()  # else the caller's context variables are unset
        self._modes = _modes()
        self._waits: Call | None = None

    def _run(self) -> None:
        # All batches wait at once, and would hold a useless cache each.
        self._model(**{**without_cache(self._model), **self._batch})

    def go_to(self, output: Output, calls: int) -> list[Call]:
        """Run until a projection was called this many times, wait there, and return the calls.

        If the pass ends first, because the model did not need this block for the batch, it starts
        again for the next one.
        """
        heard: list[Call] = []
        while len(heard) < calls:
            with self._own_modes():
                self._waits = self._running.switch(*self._answer())
            if self._waits is None:
                self._begin()
                break
            if self._waits.output.name == output.name:
                heard.append(self._waits)
        return heard

    @contextmanager
    def _own_modes(self) -> Iterator[None]:
        """Restore the pass's modes: it may wait inside `autocast`, which belongs to the thread."""
        outside = _modes()
        _set_modes(self._modes)
        try:
            yield
        finally:
            self._modes = _modes()
            _set_modes(outside)

    def _answer(self) -> list[Tensor]:
        """What the call gives at which the pass waits; nothing before the first."""
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
        """End the pass where it waits."""
        if self._running:
            with self._own_modes():
                self._running.throw()


class _Modes(NamedTuple):
    """How the thread computes: with gradients or without, and `autocast` per kind of device."""

    gradients: bool
    cached: bool
    autocasts: tuple[tuple[str, bool, torch.dtype], ...]


def _modes() -> _Modes:
    devices = ["cpu"]
    if torch.accelerator.is_available():
        accelerator = torch.accelerator.current_accelerator()
        assert accelerator is not None
        devices.append(accelerator.type)
    autocasts = [(d, torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in devices]
    return _Modes(torch.is_grad_enabled(), torch.is_autocast_cache_enabled(), tuple(autocasts))


def _set_modes(modes: _Modes) -> None:
    torch.set_grad_enabled(modes.gradients)
    torch.set_autocast_cache_enabled(modes.cached)
    for device, enabled, dtype in modes.autocasts:
        torch.set_autocast_enabled(device, enabled)
        torch.set_autocast_dtype(device, dtype)


@contextmanager
def pausing(outputs: Iterable[Output]) -> Iterator[None]:
    """Let passes wait after each call of these projections; do not call the model otherwise."""

    def wait(output: Output, values: Tensor, answer: Tensor) -> Tensor:
        gone_on_with: Tensor = getcurrent().parent.switch(Call(output, values, answer))
        return gone_on_with

    with torch.no_grad(), listening(list(outputs), wait):
        yield
