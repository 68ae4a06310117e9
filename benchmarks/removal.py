"""Time and memory of removing 132 of 144 heads from a BERT-base, beside the model's own size.

Claims: under one second, and at its peak no more than 1.3 × the memory of the model. Linux only:
the peak is read from, and reset through, the files of the process.
"""

from __future__ import annotations

import re
import statistics
import time
from pathlib import Path

from measuring.claims import say
from transformers import BertConfig, BertModel

import headcount as hc
from headcount.bench.speed import this_machine

REPEATS = 5


def memory(name: str) -> float:
    """`VmRSS`: bytes in use now; `VmHWM`: the most since the last reset."""
    status = Path("/proc/self/status").read_text()
    found = re.search(rf"{name}:\s+(\d+) kB", status)
    assert found is not None
    return float(found[1]) * 1024


def build() -> BertModel:
    model = BertModel(BertConfig())
    for parameter in model.parameters():
        parameter.data.normal_()  # touch every page
    return model


def main() -> None:
    print(this_machine())
    seconds, peaks = [], []
    for seed in range(REPEATS):
        model = build()
        mask = hc.HeadMask.random(hc.find_heads(model), keep=12, seed=seed)
        size = sum(p.numel() * p.element_size() for p in model.parameters())
        Path("/proc/self/clear_refs").write_text("5")  # reset the peak
        before = memory("VmRSS")
        started = time.perf_counter()
        removal = hc.remove_heads(model, mask)
        seconds.append(time.perf_counter() - started)
        peaks.append((size + memory("VmHWM") - before) / size)
    print(f"removed {len(removal.removed)} of 144 heads, {REPEATS} times")
    print(f"seconds: median {statistics.median(seconds):.3f}")
    say("seconds of removal, the slowest", max(seconds), at_most=1)
    say("peak memory / model memory, the worst", max(peaks), at_most=1.3)


if __name__ == "__main__":
    main()
