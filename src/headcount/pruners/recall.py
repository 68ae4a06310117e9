"""Layers before a change give what they gave before it, and need not be computed again.

A rehearsal tries one layer after another. What comes before the layer that is tried stays the same,
which is half of the model on average.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from headcount.batch import Batch, evaluating, other_forward
from headcount.surgery.outputs import Output
from headcount.surgery.paused import look_round, tensors_in

Kept = tuple[Any, list[int]]  # what a layer gave, and the versions of its tensors


class Recall:
    """Keeps what the layers of a model give for some batches.

    Layers that are called more than once in a pass, or change what they are given, are computed
    every time. So is a layer that something changed the answer of.

    Args:
        model: the model.
        outputs: its output projections, in which changes are made.
        batch: any batch, to see the order in which layers are called.
        number: tells which batch goes through the model now.
    """

    def __init__(
        self,
        model: nn.Module,
        outputs: Sequence[Output],
        batch: Batch,
        number: Callable[[], int],
    ) -> None:
        self._model, self._number = model, number
        with torch.no_grad(), evaluating(model):
            order, homes, _ = look_round(model, outputs, batch)
        once = {output.name for output, calls in order if calls == 1}
        names = dict.fromkeys(homes[output.name] for output, _ in order if output.name in homes)
        repeated = {homes[name] for name in homes if name not in once}
        self._places = {name: place for place, name in enumerate(names) if name not in repeated}
        self._homes = homes
        self._kept: dict[tuple[int, str], Kept] = {}

    def forget(self, output: Output) -> None:
        """A projection has changed for good: what comes from its layer on is not known any more."""
        first = self._place(output)
        self._kept = {key: kept for key, kept in self._kept.items() if self._places[key[1]] < first}

    @contextmanager
    def before(self, output: Output | None) -> Iterator[None]:
        """Recall layers before that of this projection, which is tried; None is for all layers."""
        first = math.inf if output is None else self._place(output)
        with ExitStack() as replaced:
            for name, place in self._places.items():
                if place < first:
                    layer = self._model.get_submodule(name)
                    recalled = partial(self._recalled, name, layer.forward)
                    replaced.enter_context(other_forward(layer, recalled))
            yield

    def _place(self, output: Output) -> float:
        return self._places.get(self._homes.get(output.name, ""), 0)

    def _recalled(self, name: str, plain: Callable[..., Any], *args: Any, **given: Any) -> Any:
        key = self._number(), name
        answer, versions = self._kept.get(key, (None, []))
        if versions and versions == _versions(answer):
            return answer
        answer = plain(*args, **given)
        self._kept[key] = answer, _versions(answer)
        return answer


def _versions(answer: Any) -> list[int]:
    """How often each tensor was changed in place."""
    found: list[Tensor] = list(tensors_in(answer))
    return [tensor._version for tensor in found]
