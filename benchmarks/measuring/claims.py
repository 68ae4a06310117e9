"""One form for every figure that has a goal, which `all.py` gathers: `name: value (goal)`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from headcount.bench.speed import Spread

_LINE = re.compile(
    r"(?P<name>.+): (?P<value>[\d.]+)(?P<spread>, quartiles [\d.]+ to [\d.]+)? "
    r"\((?P<side>at most|at least) (?P<goal>[\d.]+)\)"
)


@dataclass(frozen=True)
class Claim:
    """A figure and its goal."""

    name: str
    value: float
    spread: str
    side: str
    goal: float

    @property
    def met(self) -> bool:
        return self.value <= self.goal if self.side == "at most" else self.value >= self.goal


def say(
    name: str,
    value: float | Spread,
    *,
    at_most: float | None = None,
    at_least: float | None = None,
) -> None:
    """Print a figure with its goal."""
    side, goal = ("at most", at_most) if at_least is None else ("at least", at_least)
    spread = ""
    if isinstance(value, Spread):
        spread = f", quartiles {value.low:.3f} to {value.high:.3f}"
        value = value.median
    print(f"{name}: {value:.3f}{spread} ({side} {goal:g})", flush=True)


def read(text: str) -> list[Claim]:
    """The claims among the lines that a script has printed."""
    found = [_LINE.fullmatch(line.strip()) for line in text.splitlines()]
    return [
        Claim(m["name"], float(m["value"]), m["spread"] or "", m["side"], float(m["goal"]))
        for m in found
        if m is not None
    ]
