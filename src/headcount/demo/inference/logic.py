"""Labels by logic: a sentence means the set of small worlds in which it is true.

Each phenomenon lists all its worlds once. It gives every form of sentence a test that says in which
worlds the sentence holds. Those sets decide whether a premise entails or contradicts a hypothesis;
no label is written by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar, get_args

Label = Literal["entailment", "neutral", "contradiction"]
LABELS: tuple[Label, ...] = get_args(Label)
_World = TypeVar("_World")


@dataclass(frozen=True)
class Form:
    """Sentences with open slots, and the worlds in which all of them are true.

    Attributes:
        sentences: templates for `str.format`, without a capital letter and a full stop.
        truth: bit i is set if they are all true in world i.
    """

    sentences: tuple[str, ...]
    truth: int

    def __and__(self, other: Form) -> Form:
        """Both forms, one after the other."""
        return Form(self.sentences + other.sentences, self.truth & other.truth)


class Worlds(Generic[_World]):
    """All the ways things could be, as far as the forms of a phenomenon can tell them apart.

    Args:
        worlds: the worlds, of any type that the tests of the forms take.
    """

    def __init__(self, worlds: Iterable[_World]) -> None:
        self.worlds = tuple(worlds)

    def form(self, sentence: str, holds: Callable[[_World], bool]) -> Form:
        """A form of sentence with its meaning, which is tested in every world right away."""
        truth = sum(1 << i for i, world in enumerate(self.worlds) if holds(world))
        return Form((sentence,), truth)


def decide(premise: Form, hypothesis: Form) -> Label:
    """What the premise says about the hypothesis; it must be true in some world."""
    if not premise.truth & ~hypothesis.truth:
        return "entailment"
    return "neutral" if premise.truth & hypothesis.truth else "contradiction"


def together(forms: Iterable[Form]) -> list[Form]:
    """All pairs of forms, in both orders, that can both be true and where each adds something."""
    pool = list(forms)
    both = ((one, two, one & two) for one in pool for two in pool)
    return [sum_ for one, two, sum_ in both if sum_.truth not in (0, one.truth, two.truth)]
