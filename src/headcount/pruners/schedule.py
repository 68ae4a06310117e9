"""Temperature against training progress: log-linear from start to end, then constant.

DSP's annealing (Table 2): τ falls by the same factor every step until the cooldown is over.
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
