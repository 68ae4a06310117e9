"""Time jobs side by side, so that all of them see the same machine."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch

Job = Callable[[], object]
Inside = Callable[[], AbstractContextManager[object]]


@dataclass(frozen=True)
class Spread:
    """A figure that was measured several times.

    Attributes:
        median: of all.
        low: the lower quartile.
        high: the upper quartile.
    """

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """The spread of these values; one value alone has none."""
        if len(values) == 1:
            return cls(values[0], values[0], values[0])
        low, median, high = statistics.quantiles(values, n=4, method="inclusive")
        return cls(median, low, high)


def in_turn(
    jobs: Sequence[Job],
    rounds: int = 15,
    warm_up: int = 2,
    budget: float | None = None,
    clock: Callable[[], float] = time.perf_counter,
    inside: Sequence[Inside] | None = None,
) -> list[list[float]]:
    """Seconds of each job in each round; in a round every job is run once, one after another.

    Every other round goes backwards, so that no job always follows the same one.

    Args:
        jobs: what to time.
        rounds: how often each is run.
        warm_up: rounds before that, which are not counted.
        budget: seconds after which no further round begins; three are always run.
        clock: `time.process_time` counts what the processor did for this process, and hardly
            sees what else a shared machine does; then let torch have one thread.
        inside: what each job is run in; entering and leaving it is not timed.
    """
    times: list[list[float]] = [[] for _ in jobs]
    began = time.perf_counter()
    for turn in range(-warm_up, rounds):
        if budget is not None and turn >= 3 and time.perf_counter() - began > budget:
            break
        order = list(zip(jobs, inside or [nullcontext] * len(jobs), times, strict=True))
        for job, around, spent in order if turn % 2 == 0 else reversed(order):
            with around():
                _settle()
                started = clock()
                job()
                _settle()
                seconds = clock() - started
            if turn >= 0:
                spent.append(seconds)
    return times


def side_by_side(
    jobs: Sequence[Job], rounds: int = 15, warm_up: int = 2, budget: float | None = None
) -> list[float]:
    """Median seconds of each job, run in turn; see `in_turn`."""
    return [statistics.median(spent) for spent in in_turn(jobs, rounds, warm_up, budget)]


def ratio(some: Sequence[float], others: Sequence[float]) -> Spread:
    """How many times as long some took as others, compared round by round."""
    return Spread.of([a / b for a, b in zip(some, others, strict=True)])


def _settle() -> None:
    """Wait until an accelerator has done what it was told: it works while Python goes on."""
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()
