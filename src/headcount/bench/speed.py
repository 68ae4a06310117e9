"""Time jobs side by side, so that all of them see the same machine, and describe that machine."""

from __future__ import annotations

import os
import platform
import re
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch
import transformers

import headcount

Job = Callable[[], object]
Inside = Callable[[], AbstractContextManager[object]]


@dataclass(frozen=True)
class Spread:
    """The distribution of a figure that was measured several times.

    Attributes:
        median: the median of all measurements.
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
    """Seconds of each job in each round; a round runs every job once, one after another.

    Every other round goes backwards, so that no job always follows the same one.

    Args:
        jobs: the functions to time.
        rounds: how often each job runs. More rounds give a more certain median.
        warm_up: how many rounds run before those, without being counted.
        budget: seconds after which no new round begins; at least three rounds are run. None
            for no limit.
        clock: the clock to read. On a shared machine, `time.process_time` is steadier: it counts
            only the work for this process. Then give torch one thread.
        inside: for each job, a context manager that it runs in, which is not timed; None for none.
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
    """Median seconds of each job; for the arguments see `in_turn`."""
    return [statistics.median(spent) for spent in in_turn(jobs, rounds, warm_up, budget)]


def ratio(some: Sequence[float], others: Sequence[float]) -> Spread:
    """How many times longer `some` took than `others`, compared round by round."""
    return Spread.of([a / b for a, b in zip(some, others, strict=True)])


def _settle() -> None:
    """Wait until an accelerator has finished: it still works when Python goes on."""
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()


@dataclass(frozen=True)
class Machine:
    """Where a measurement was made.

    Attributes:
        processor: the name of the processor.
        cores: how many cores this process may use.
        threads: how many threads torch uses.
        load: how many processes wanted a core, on average over the last minute.
        versions: the versions of Python and of the packages that matter, by name.
    """

    processor: str
    cores: int
    threads: int
    load: float
    versions: dict[str, str]

    def __str__(self) -> str:
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        return (
            f"{self.processor}, {self.cores} cores, {self.threads} threads, load {self.load:.1f}; "
            f"{versions}"
        )


def this_machine() -> Machine:
    """Describe the machine as it is now."""
    return Machine(
        _processor(),
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        torch.get_num_threads(),
        os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0,
        {
            "Python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "headcount": headcount.__version__,
        },
    )


def _processor() -> str:
    try:
        listed = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        listed = ""
    named = re.search(r"model name\s*: (.+)", listed)
    return named[1].strip() if named else platform.processor() or platform.machine()
