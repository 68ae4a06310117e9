"""Time jobs side by side, so that all of them see the same machine."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence

Job = Callable[[], object]


def side_by_side(
    jobs: Sequence[Job], rounds: int = 15, warm_up: int = 2, budget: float | None = None
) -> list[float]:
    """Median seconds of each job, run in turn.

    Args:
        jobs: what to time.
        rounds: how often each is run.
        warm_up: rounds before that, which are not counted.
        budget: seconds after which no further round begins; three are always run.
    """
    times: list[list[float]] = [[] for _ in jobs]
    began = time.perf_counter()
    for turn in range(-warm_up, rounds):
        if budget is not None and turn >= 3 and time.perf_counter() - began > budget:
            break
        for job, spent in zip(jobs, times, strict=True):
            started = time.perf_counter()
            job()
            if turn >= 0:
                spent.append(time.perf_counter() - started)
    return [statistics.median(spent) for spent in times]
