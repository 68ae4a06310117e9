"""Processor time of importing headcount and of asking for help, beside importing transformers.

Every side is a fresh process, in turn. Processor time counts, so a busy machine matters little.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
from pathlib import Path

from measuring.claims import say

from headcount.bench.speed import this_machine

ROUNDS = 7
COMMAND = str(Path(sys.executable).with_name("headcount"))
BESIDE = "import torch, transformers"
MODELS = "import torch, transformers.modeling_utils"  # what a model needs to be there at all
CUTTING = "find and cut heads"
SIDES = {
    BESIDE: [sys.executable, "-c", BESIDE],
    MODELS: [sys.executable, "-c", MODELS],
    "import headcount": [sys.executable, "-c", "import headcount"],
    CUTTING: [
        sys.executable, "-c", "import headcount as hc; hc.find_heads, hc.remove_heads, hc.masked",
    ],
    "headcount --version": [COMMAND, "--version"],
    "headcount --help": [COMMAND, "--help"],
    "headcount prune --help": [COMMAND, "prune", "--help"],
    "a mistyped option": [COMMAND, "prune", "--nonsense"],
}  # fmt: skip
MOST = 0.5  # seconds of processor time that an answer at the door may take


def processor_seconds(words: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(words, capture_output=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    print(this_machine())
    taken: dict[str, list[float]] = {name: [] for name in SIDES}
    for turn in range(ROUNDS + 1):
        for name, words in SIDES.items():
            seconds = processor_seconds(words)
            if turn:  # the first fills the caches of the disk
                taken[name].append(seconds)
    medians = {name: statistics.median(times) for name, times in taken.items()}
    for name, seconds in medians.items():
        print(f"{name:28} {seconds:.2f} s")
    for name in list(SIDES)[2:]:
        beside, goal = (MODELS, 1.1) if name == CUTTING else (BESIDE, 0.3)
        say(f"{name} / {beside}", medians[name] / medians[beside], at_most=goal)
    for name in list(SIDES)[4:]:
        say(f"{name}, seconds", medians[name], at_most=MOST)


if __name__ == "__main__":
    main()
