"""The most memory that a job holds at a time.

Asked of torch's own allocator, event by event: the same job gives the same number, on any machine
and under any load. What a process takes besides (its code, the scratch memory of mathematical
libraries) is not in it.
"""

from __future__ import annotations

from torch.profiler import ProfilerActivity, profile

from headcount.bench.speed import Job

_EVENT = "[memory]"


def peak_memory(job: Job) -> int:
    """Bytes of tensors at the worst moment of a job, beyond those that were there before."""
    job()  # what is made once and kept is not a part of it
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        job()
    results = record.profiler.kineto_results
    events = [event for event in results.events() if event.name() == _EVENT]
    held = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak
