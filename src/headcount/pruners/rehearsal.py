"""Heads go in turn before any is cut: each time the one that the model is measured to miss least.

A quadratic model of the loss says well which head of a layer the others replace best. It says
less well what a layer is worth beside another, and nothing about what one misses once others have
lost heads too. So layers are compared by measurement. The model answers as if the cheapest head
of a layer were gone, and the output weights of the others made up for it.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from torch import Tensor, nn

from headcount.batch import Batch, batch_size
from headcount.pruners.curvature import Curvature, Fit
from headcount.pruners.distance import Distance
from headcount.pruners.recall import Recall
from headcount.surgery.outputs import Output, listening

# What layers are compared on: at least this many answers, and this many tokens.
ANSWERS, TOKENS = 256, 2048


class Layer(NamedTuple):
    """A block in the rehearsal.

    Attributes:
        curvature: what is known about its output projection.
        width: inputs of a unit.
        costs: what each of its units costs by the quadratic model.
        least: how many of them stay in any case.
    """

    curvature: Curvature
    width: int
    costs: Tensor
    least: int

    @property
    def order(self) -> list[int]:
        """Its units, the first to go first."""
        order: list[int] = self.costs.argsort(stable=True).tolist()
        return order

    def fit(self, gone: int, ridge: float) -> Fit:
        """The output weights without the first units to go."""
        own = range(self.width)
        kept = [unit * self.width + i for unit in sorted(self.order[gone:]) for i in own]
        return self.curvature.fitted(kept, ridge)


class Rehearsal:
    """A model that answers as if heads were gone; no parameter of it changes.

    Args:
        model: the model to measure.
        layers: its blocks, with the heads that may go.
        batches: what is measured on.
        ridge: the penalty on changing weights, in units of the mean square of the values.
    """

    def __init__(
        self, model: nn.Module, layers: Sequence[Layer], batches: Sequence[Batch], ridge: float
    ) -> None:
        self.layers, self.ridge = layers, ridge
        self.gone = [0] * len(layers)  # units of each
        self._fits: dict[str, Fit] = {}
        self._last: dict[tuple[int, int], Fit] = {}  # by layer and units gone: what was tried last
        self._distance = Distance(model, batches)
        self._outputs = [layer.curvature.output for layer in layers]
        first = self._distance.batches[0]
        self._recall = Recall(model, self._outputs, first, lambda: self._distance.place)

    def without(self, layer: int, more: int) -> float:
        """The distance if this many more units of a layer were gone."""
        output = self._outputs[layer]
        with self._tried(layer, more), self._recall.before(output):
            return self._measured()

    def remove(self, layer: int, more: int) -> None:
        """Go on without this many more units of a layer."""
        self.gone[layer] += more
        self._fit(layer, self.gone[layer])
        self._recall.forget(self._outputs[layer])

    @contextmanager
    def _tried(self, layer: int, more: int) -> Iterator[None]:
        name = self._outputs[layer].name
        before = self._fits.get(name)
        self._fit(layer, self.gone[layer] + more)
        try:
            yield
        finally:
            del self._fits[name]
            if before is not None:
                self._fits[name] = before

    def _fit(self, layer: int, gone: int) -> None:
        fit = self._last.get((layer, gone)) or self.layers[layer].fit(gone, self.ridge)
        self._last = {key: other for key, other in self._last.items() if key[0] != layer}
        self._last[layer, gone] = self._fits[self._outputs[layer].name] = fit

    def distance(self) -> float:
        """How far the answers are from those with all units."""
        with self._recall.before(None):
            return self._measured()

    def _measured(self) -> float:
        with listening(self._outputs, self._answer):
            return self._distance.now()

    def _answer(self, output: Output, values: Tensor, answer: Tensor) -> Tensor | None:
        fit = self._fits.get(output.name)
        if fit is None:
            return None
        if fit.weight.dtype != values.dtype or fit.weight.device != values.device:
            # Only here it is known where the model computes: its weights may be offloaded.
            fit = Fit(fit.weight.to(values), None if fit.bias is None else fit.bias.to(values))
            self._fits[output.name] = fit
        return nn.functional.linear(values, fit.weight, fit.bias)


def measured_course(
    rehearsal: Rehearsal, keep: int, step: int, tell: Callable[[int], None]
) -> list[tuple[int, float]]:
    """Let units go in turn until `keep` are left, or no more may go.

    Each time, units of the layer go that the answers change least without. Most layers need not be
    measured again for that: what was measured before others went is nearly always too little. So
    only the layer that seems cheapest is, until one is cheapest by a new measurement.

    Args:
        rehearsal: the model, with all its units.
        keep: how many units stay.
        step: how many go at a time.
        tell: is told how many are gone.

    Returns:
        The layer that each unit went from, with the distance then, in the order in which they went.
        They are fewer if without any more the answers would be too large for the model's type.
    """
    went: list[tuple[int, float]] = []
    start = now = rehearsal.distance()
    left = sum(len(layer.costs) for layer in rehearsal.layers) - keep
    tell(0)
    queue = [(-math.inf, 0.0, place, -1) for place in range(len(rehearsal.layers))]
    while left > 0 and queue:
        rise, cost, place, measured_at = heapq.heappop(queue)
        layer, gone = rehearsal.layers[place], rehearsal.gone[place]
        more = min(step, len(layer.costs) - gone - layer.least)
        if more < 1:
            continue
        if measured_at < len(went):
            rise = (rehearsal.without(place, more) - now) / more
            if math.isfinite(rise):
                cost = float(layer.costs[layer.order[gone]])  # decides between equal ones
                heapq.heappush(queue, (rise, cost, place, len(went)))
            continue
        more = min(more, left)  # measured as for a smaller K, so that the courses for all are one
        rehearsal.remove(place, more)
        now += rise * more
        went += [(place, now - start)] * more
        left -= more
        tell(len(went))
        heapq.heappush(queue, (rise, cost, place, -1))
    return went


class Spread:
    """A few of the batches that come by, from all over them: enough to compare layers on.

    Args:
        tokens: how many tokens are enough.
        answers: how many answers are.
    """

    def __init__(self, tokens: int = TOKENS, answers: int = ANSWERS) -> None:
        self._tokens, self._answers = tokens, answers
        self._kept: list[Batch] = []
        self._every, self._wanted = 1, 1

    def watching(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """The same batches, some of which are kept."""
        for place, batch in enumerate(batches):
            if not place:
                self._wanted = _batches_wanted(batch, self._tokens, self._answers)
            if place % self._every == 0:
                self._kept.append(batch)
            if len(self._kept) > 4 * self._wanted:  # there may be more than fit into memory
                self._kept, self._every = self._kept[::2], 2 * self._every
            yield batch

    def batches(self) -> list[Batch]:
        """Those that were kept, as many as are wanted."""
        number = min(self._wanted, len(self._kept))
        step = len(self._kept) / max(number, 1)
        return [self._kept[int((place + 0.5) * step)] for place in range(number)]


def _batches_wanted(one: Batch, enough_tokens: int, enough_answers: int) -> int:
    """How many batches like this one have enough tokens and answers."""
    size = batch_size(one)
    shown, labels = one.get("attention_mask", one.get("input_ids")), one.get("labels")
    tokens = shown.numel() / size if isinstance(shown, Tensor) else TOKENS
    several = isinstance(labels, Tensor) and labels.dim() == 2 and not labels.is_floating_point()
    answers = labels[0].numel() if isinstance(labels, Tensor) and several else 1
    return math.ceil(max(enough_tokens / tokens, enough_answers / answers) / size)
