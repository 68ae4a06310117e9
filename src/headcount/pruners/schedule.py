"""What changes with the training's progress: the temperature, and how many heads there are.

DSP's annealing (Table 2): τ falls by the same factor every step until the cooldown is over. The
countdown: a training begins with all heads and loses them, many at first and the last ones slowly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from headcount.errors import HeadcountError


@dataclass(frozen=True)
class Annealing:
    """How the temperature falls.

    Attributes:
        start: temperature of the first step. High temperatures make all gates alike.
        end: temperature when the cooldown is over. Low ones make the gates hard.
        cooldown: number of steps, or a fraction (of at most 1.0) of the training. A fraction gives
            the same course to a short training and a long one. None never cools: the temperature
            stays at the start, as where the paper shows that annealing is essential (Fig. 7b).
    """

    start: float
    end: float
    cooldown: int | float | None

    def __post_init__(self) -> None:
        if not (self.start > 0 and self.end > 0):
            raise HeadcountError(
                f"a temperature must be above 0, got {self.start} → {self.end}; "
                "give both ends of the annealing as positive numbers"
            )
        longest = 1.0 if isinstance(self.cooldown, float) else math.inf
        if self.cooldown is not None and not 0 < self.cooldown <= longest:
            raise HeadcountError(
                f"a cooldown of {self.cooldown} is neither a number of steps nor a fraction of the "
                "training; give an integer above 0 or a float of at most 1.0"
            )

    def progress(self, step: int, total_steps: int) -> float:
        """How much of the cooldown is over at a step, counted from 0: between 0 and 1."""
        if self.cooldown is None:
            return 0.0
        steps = self.cooldown
        if isinstance(steps, float):
            steps = max(1, round(steps * total_steps))
        return min(step / steps, 1.0)

    def temperature(self, step: int, total_steps: int) -> float:
        """The temperature at a step, counted from 0."""
        return float(self.start * (self.end / self.start) ** self.progress(step, total_steps))


@dataclass(frozen=True)
class Countdown:
    """How many heads a training step has: all of them at the start, K from some point on.

    Attributes:
        start: share of the training in which all heads are there.
        end: share of the training after which K are left; the same as `start` for all at once.
        power: of the course in between. 1 loses equally many at any time; 3 loses most of them
            early, when there are many to choose from, and the last ones slowly.
    """

    start: float = 0.05
    end: float = 0.55
    power: float = 3.0

    def __post_init__(self) -> None:
        if not (0 <= self.start <= self.end <= 1 and self.power > 0):
            raise HeadcountError(
                f"a countdown from {self.start} to {self.end} of the training with power "
                f"{self.power} is not one; give two shares, the earlier first, and a power above 0"
            )

    def count(self, step: int, total_steps: int, heads: int, keep: int) -> int:
        """How many of the heads there are at a step, counted from 0."""
        return self.count_at(step / total_steps if step < total_steps else 1.0, heads, keep)

    def count_at(self, share: float, heads: int, keep: int) -> int:
        """How many of the heads there are after this share of the training."""
        if share >= self.end:
            return keep
        if share <= self.start:
            return heads
        left = float(((self.end - share) / (self.end - self.start)) ** self.power)
        return keep + round((heads - keep) * left)
