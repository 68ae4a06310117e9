"""Write thousands of pairs, from a few forms and new words for each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain, islice
from random import Random

from headcount.demo.inference.balance import Blend, blend
from headcount.demo.inference.logic import LABELS, Label
from headcount.demo.inference.phenomena import PHENOMENA
from headcount.demo.inference.phenomenon import Fill, Phenomenon
from headcount.errors import HeadcountError

_TRIES = 1000


@dataclass(frozen=True)
class Pair:
    """One example of the task.

    Attributes:
        premise: one or two sentences that are assumed to be true.
        hypothesis: a sentence about the same things.
        label: whether the hypothesis then must be true, may be true, or cannot be true.
        phenomenon: the kind of inference: the name of one of `PHENOMENA`.
    """

    premise: str
    hypothesis: str
    label: Label
    phenomenon: str


@dataclass(frozen=True)
class Forms:
    """How many sentence forms each phenomenon uses: the difficulty of the task.

    More and longer forms take longer to learn.

    Attributes:
        premises: forms of premises; most have one sentence.
        longer: more forms of premises, with two sentences each.
        hypotheses: forms of hypotheses.
    """

    premises: int = 10
    longer: int = 2
    hypotheses: int = 14


ALL = Forms()


def inference_pairs(size: int, seed: int) -> list[Pair]:
    """Pairs in random order; labels and phenomena are equally frequent.

    Every hypothesis occurs with three premises, one for each label, and no premise occurs twice.

    Args:
        size: how many pairs; a multiple of 3 balances the labels exactly.
        seed: the same seed gives the same pairs.
    """
    return inference_split(size, 0, seed)[0]


def inference_split(
    train: int,
    evaluation: int,
    seed: int,
    phenomena: Sequence[str] | None = None,
    forms: Forms = ALL,
) -> tuple[list[Pair], list[Pair]]:
    """Pairs to train on and pairs to evaluate on, which share no premise and no set of words.

    Args:
        train: how many pairs to train on.
        evaluation: how many pairs to evaluate on.
        seed: the same seed and sizes give the same pairs.
        phenomena: names of the phenomena to use; None for all. Fewer make an easier task.
        forms: how many sentence forms each phenomenon uses. Fewer make an easier task.

    Returns:
        The pairs to train on and those to evaluate on.
    """
    if min(train, evaluation) < 0:
        raise HeadcountError(
            f"{train} and {evaluation} pairs are asked for, expected numbers from 0; ask for some"
        )
    chosen = [each for each in PHENOMENA if phenomena is None or each.name in phenomena]
    random = Random(seed)
    triplets = _triplets(chosen, forms, random)
    parts = []
    for size in (train, evaluation):
        pairs = list(islice(chain.from_iterable(triplets), size))
        random.shuffle(pairs)
        parts.append(pairs)
    return parts[0], parts[1]


def _triplets(
    phenomena: Sequence[Phenomenon], forms: Forms, random: Random
) -> Iterator[list[Pair]]:
    """Endless groups of three pairs, from all phenomena in turn."""
    used: set[object] = set()
    while True:
        for phenomenon in random.sample(phenomena, len(phenomena)):
            yield _triplet(phenomenon, forms, random, used)


def _triplet(phenomenon: Phenomenon, forms: Forms, random: Random, used: set[object]) -> list[Pair]:
    """A hypothesis with three premises, in words that were not used before."""
    form, premises = _blend(phenomenon.name, forms).draw(random)
    for _ in range(_TRIES):
        fill = phenomenon.fill(random)
        texts = [phenomenon.write(premise, fill, random) for premise in premises]
        new = {_content(phenomenon, fill), *texts}
        if not new & used:
            used |= new
            hypothesis = phenomenon.write(form, fill, random)
            return [
                Pair(text, hypothesis, label, phenomenon.name)
                for text, label in zip(texts, LABELS, strict=True)
            ]
    raise HeadcountError(
        f"the words for {phenomenon.name} are used up, expected fewer pairs; ask for fewer"
    )


def _content(phenomenon: Phenomenon, fill: Fill) -> object:
    """The words of a premise, regardless of who does what to whom."""
    return phenomenon.name, frozenset(fill.values())


@cache
def _blend(name: str, forms: Forms) -> Blend:
    """The chosen forms of a phenomenon: always the same, whatever the seed of the pairs."""
    phenomenon = next(each for each in PHENOMENA if each.name == name)
    premises = [(phenomenon.premises, forms.premises), (phenomenon.longer, forms.longer)]
    return blend(premises, (phenomenon.hypotheses, forms.hypotheses), Random(name))
