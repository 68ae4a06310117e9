"""What the task is made of: a premise, a hypothesis and how the one bears on the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

Label = Literal["entailment", "neutral", "contradiction"]
LABELS: tuple[Label, ...] = get_args(Label)


@dataclass(frozen=True)
class Pair:
    """One example of the task.

    Attributes:
        premise: one or two sentences that are taken to be true.
        hypothesis: a sentence about the same things.
        label: whether the hypothesis must be true, may be true, or cannot be true.
        phenomenon: the name of what decides it, one of `PHENOMENA`.
    """

    premise: str
    hypothesis: str
    label: Label
    phenomenon: str
