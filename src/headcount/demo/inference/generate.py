"""Pairs by the thousand, from a few forms and ever new words."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import chain, islice
from random import Random

from headcount.demo.inference.balance import Blend, blend
from headcount.demo.inference.pair import LABELS, Pair
from headcount.demo.inference.phenomena import PHENOMENA
from headcount.demo.inference.phenomenon import Fill, Phenomenon
from headcount.errors import HeadcountError

# Forms of each phenomenon. With more of them, and longer ones, the task takes longer to learn.
_PREMISES = 10
_LONGER = 2
_HYPOTHESES = 14
_TRIES = 1000


def inference_pairs(size: int, seed: int) -> list[Pair]:
    """Pairs in random order; labels and phenomena are equally frequent.

    Every hypothesis occurs with three premises, one for each label, and no premise occurs twice.

    Args:
        size: how many pairs; a multiple of 3 balances the labels exactly.
        seed: the same seed gives the same pairs.

    Returns:
        The pairs.
    """
    return inference_split(size, 0, seed)[0]


def inference_split(train: int, evaluation: int, seed: int) -> tuple[list[Pair], list[Pair]]:
    """Pairs to train on and pairs to evaluate on, which share no premise and no choice of words.

    Args:
        train: how many pairs to train on.
        evaluation: how many pairs to evaluate on.
        seed: the same seed and sizes give the same pairs.

    Returns:
        The pairs to train on and those to evaluate on.
    """
    if min(train, evaluation) < 0:
        raise HeadcountError(
            f"{train} and {evaluation} pairs are asked for, expected numbers from 0; ask for some"
        )
    random = Random(seed)
    triplets = _triplets(random)
    parts = []
    for size in (train, evaluation):
        pairs = list(islice(chain.from_iterable(triplets), size))
        random.shuffle(pairs)
        parts.append(pairs)
    return parts[0], parts[1]


def _triplets(random: Random) -> Iterator[list[Pair]]:
    """Three pairs at a time, phenomena in turn."""
    used: set[object] = set()
    while True:
        for phenomenon in random.sample(PHENOMENA, len(PHENOMENA)):
            yield _triplet(phenomenon, random, used)


def _triplet(phenomenon: Phenomenon, random: Random, used: set[object]) -> list[Pair]:
    """A hypothesis with three premises, in words that were not used before."""
    form, premises = _blend(phenomenon.name).draw(random)
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
    """What a premise is about, whoever does what to whom."""
    return phenomenon.name, frozenset(fill.values())


@cache
def _blend(name: str) -> Blend:
    """The forms of a phenomenon: always the same, whatever the seed of the pairs."""
    phenomenon = next(each for each in PHENOMENA if each.name == name)
    premises = [(phenomenon.premises, _PREMISES), (phenomenon.longer, _LONGER)]
    return blend(premises, (phenomenon.hypotheses, _HYPOTHESES), Random(name))
