"""Labels by logic: a sentence means the set of small worlds in which it is true.

Each phenomenon lists its worlds once, all of them, and gives every form of sentence a test that
says in which it holds. Whether a premise entails or contradicts a hypothesis is then read off
those sets; no form says so itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar, get_args

_World = TypeVar("_World")


@dataclass(frozen=True)
class Form:
    """Sentences with open slots, and where they are all true.

    Attributes:
        sentences: templates for `str.format`, without capital letter and full stop.
        truth: bit i is set if they are true in world i.
    """

    sentences: tuple[str, ...]
    truth: int

    def __and__(self, other: Form) -> Form:
        """Both, one after the other."""
        return Form(self.sentences + other.sentences, self.truth & other.truth)


class Worlds(Generic[_World]):
    """All the ways things could be, as far as the forms of a phenomenon can tell them apart.

    Args:
        worlds: of any type that the tests understand.
    """

    def __init__(self, worlds: Iterable[_World]) -> None:
        self.worlds = tuple(worlds)

    def form(self, sentence: str, holds: Callable[[_World], bool]) -> Form:
        """A form of sentence with its meaning, which is looked up in every world at once."""
        truth = sum(1 << i for i, world in enumerate(self.worlds) if holds(world))
        return Form((sentence,), truth)


def decide(premise: Form, hypothesis: Form) -> Label:
    """How the premise bears on the hypothesis; the premise must be true somewhere."""
    if not premise.truth & ~hypothesis.truth:
        return "entailment"
    return "neutral" if premise.truth & hypothesis.truth else "contradiction"


def together(forms: Iterable[Form]) -> list[Form]:
    """Every two forms, in either order, that agree in some world and each add something."""
    pool = list(forms)
    both = ((one, two, one & two) for one in pool for two in pool)
    return [sum_ for one, two, sum_ in both if sum_.truth not in (0, one.truth, two.truth)]


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
