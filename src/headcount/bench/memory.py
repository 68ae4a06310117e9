"""The most memory that a job holds at a time.

Asked of torch's own allocator, event by event: the same job gives the same number, on any machine
and under any load. What a process takes besides (its code, the scratch memory of mathematical
libraries) is not in it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch.profiler import ProfilerActivity, profile

from headcount.bench.speed import Job

_EVENT = "[memory]"


@contextmanager
def _silent() -> Iterator[None]:
    """Keep native code from writing to the terminal: the profiler tells of its start and end."""
    sys.stderr.flush()
    terminal = os.dup(2)
    with open(os.devnull, "wb") as nothing:
        os.dup2(nothing.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(terminal, 2)
        os.close(terminal)


def peak_memory(job: Job) -> int:
    """Bytes of tensors at the worst moment of a job, beyond those that were there before."""
    job()  # what is made once and kept is not a part of it
    record: Any = profile(activities=[ProfilerActivity.CPU], profile_memory=True)
    with _silent():
        record.start()
    try:
        job()
    finally:
        with _silent():
            record.stop()
    results = record.profiler.kineto_results
    events = [event for event in results.events() if event.name() == _EVENT]
    held = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak
