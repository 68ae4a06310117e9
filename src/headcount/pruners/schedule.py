"""What changes during a training: the temperature, and the number of heads.

Annealing (DSP paper, Table 2): τ falls by the same factor in every step until the cooldown is over.
Countdown: a training begins with all heads and loses them, many at first and the last ones slowly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from headcount.errors import HeadcountError


@dataclass(frozen=True)
class Annealing:
    """How the temperature falls.

    Attributes:
        start: temperature of the first step. A high one makes all gates nearly equal.
        end: temperature when the cooldown is over. A low one makes gates nearly 0 or 1.
        cooldown: number of steps, or a fraction (up to 1.0) of the training. A fraction gives short
            and long trainings the same schedule. None never cools: the temperature stays at the
            start. Where the paper shows that annealing is essential (Fig. 7b), its authors' code
            holds the end temperature from the first step: `Annealing(1e-8, 1e-8, None)`.
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

    expects: ClassVar[str] = "an Annealing, its cooldown None to stay at its start"

    @classmethod
    def from_setting(cls, said: Any) -> Annealing:
        """Refuse any value: recipes set start, end and cooldown one by one."""
        raise ValueError

    def progress(self, step: int, total_steps: int) -> float:
        """The share of the cooldown that is over at a step, counted from 0."""
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
        start: the first share of the training, in which all heads are there.
        end: the share after which K are left. The same as `start` removes all others at once.
        power: the shape in between. 1 loses heads at a constant rate. 3 loses most of them early,
            when there are many to choose from, and the last ones slowly.
    """

    start: float = 0.05
    end: float = 0.55
    power: float = 3.0

    expects: ClassVar[str] = "a countdown: a list of its start, end and power, or true"

    @classmethod
    def from_setting(cls, said: Any) -> Countdown:
        """From true, or from a list of its numbers: start, end and power."""
        if said is True:
            return cls()
        if not isinstance(said, list | tuple):
            raise ValueError
        try:
            return cls(*(float(number) for number in said))
        except TypeError:
            raise ValueError from None

    def as_setting(self) -> tuple[float, float, float]:
        """What `from_setting` reads."""
        return (self.start, self.end, self.power)

    def __str__(self) -> str:
        return f"{self.start:g}>{self.end:g}^{self.power:g}"

    def __post_init__(self) -> None:
        if not (0 <= self.start <= self.end <= 1 and self.power > 0):
            raise HeadcountError(
                f"a countdown from {self.start} to {self.end} of the training with power "
                f"{self.power} is not one; give two shares, the earlier first, and a power above 0"
            )

    def count(self, step: int, total_steps: int, heads: int, keep: int) -> int:
        """How many of the heads are left at a step, counted from 0."""
        return self.count_at(step / total_steps if step < total_steps else 1.0, heads, keep)

    def count_at(self, share: float, heads: int, keep: int) -> int:
        """How many of the heads are left after this share of the training."""
        if share >= self.end:
            return keep
        if share <= self.start:
            return heads
        left = float(((self.end - share) / (self.end - self.start)) ** self.power)
        return keep + round((heads - keep) * left)
