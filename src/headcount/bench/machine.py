"""What a speed was measured on: speeds of different machines cannot be compared."""

from __future__ import annotations

import os
import platform
import re
from dataclasses import dataclass
from pathlib import Path

import torch
import transformers

import headcount


@dataclass(frozen=True)
class Machine:
    """Where a measurement was made.

    Attributes:
        processor: its name.
        cores: how many this process may use.
        threads: how many torch uses.
        load: processes that wanted a core when it began, on average over a minute.
        versions: of Python and of the packages that matter, by name.
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
