"""Which premises go with a hypothesis, and how often, so that neither gives the label away.

Every hypothesis gets one premise for each label, so a hypothesis alone says nothing about the
label. Premises are drawn with weights, so that each form of premise also gets each label equally
often. Where no such weights exist, the most even ones are used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from headcount.demo.inference.logic import LABELS, Form, Label, decide
from headcount.errors import HeadcountError

_ROUNDS = 60  # how often the weights are fitted, to the premises and then to the hypotheses
_DRAWS = 40  # how many choices of forms are tried
_EVEN = 0.05  # a blend that is less uneven is good enough; see `_unevenness`

Pool = tuple[Sequence[Form], int]  # forms, and how many to choose
_Cell = tuple[int, int]  # a premise and a hypothesis, by their numbers


@dataclass(frozen=True)
class Blend:
    """Hypotheses, each with premises of every label.

    Attributes:
        hypotheses: forms to choose from, all equally often.
        premises: for each hypothesis and label, the premises and the weight of each.
    """

    hypotheses: tuple[Form, ...]
    premises: tuple[dict[Label, tuple[list[Form], list[float]]], ...]

    def draw(self, random: Random) -> tuple[Form, list[Form]]:
        """A hypothesis and three premises, in the order of the labels."""
        number = random.randrange(len(self.hypotheses))
        table = self.premises[number]
        drawn = [random.choices(*table[label])[0] for label in LABELS]
        return self.hypotheses[number], drawn


def blend(premises: Sequence[Pool], hypotheses: Pool, random: Random) -> Blend:
    """Choose forms, and fit weights to them.

    Args:
        premises: pools of forms, each with the number of forms to choose from it.
        hypotheses: the pool of forms for hypotheses, with the number to choose.
        random: the generator that chooses.

    Returns:
        The first blend that is even enough, or the most even one of all that were tried.
    """
    tables = []
    for _ in range(_DRAWS):
        rows = [form for pool in premises for form in _choose(pool, random)]
        columns = _choose(hypotheses, random)
        tables.append((_usable(rows, columns), rows, columns))
    tables.sort(key=lambda table: -len(table[0]))  # the richest first
    best: tuple[float, Blend] | None = None
    for labels, rows, columns in tables:
        if not labels:
            break
        weights = _fit(labels)
        uneven = _unevenness(labels, weights)
        if best is None or uneven < best[0]:
            best = uneven, _assemble(rows, columns, labels, weights)
        if uneven < _EVEN:
            break
    if best is None:
        raise HeadcountError("no premises entail, allow and exclude the same hypothesis; add forms")
    return best[1]


def _choose(pool: Pool, random: Random) -> list[Form]:
    forms, count = pool
    return random.sample(forms, min(count, len(forms)))


def _usable(premises: Sequence[Form], hypotheses: Sequence[Form]) -> dict[_Cell, Label]:
    """Labels of the pairs whose premise and hypothesis both get all three; no repetitions."""
    labels = {
        (p, h): decide(premise, hypothesis)
        for p, premise in enumerate(premises)
        for h, hypothesis in enumerate(hypotheses)
        if hypothesis.sentences[0] not in premise.sentences
    }
    while True:
        seen = {(axis, cell[axis], label) for cell, label in labels.items() for axis in (0, 1)}
        kept = {
            cell: label
            for cell, label in labels.items()
            if all((axis, cell[axis], each) in seen for axis in (0, 1) for each in LABELS)
        }
        if len(kept) == len(labels):
            return kept
        labels = kept


def _fit(labels: dict[_Cell, Label]) -> dict[_Cell, float]:
    """Weights with a sum of 1 for each label of a hypothesis, as even as can be for premises."""
    weights = dict.fromkeys(labels, 1.0)
    for _ in range(_ROUNDS):
        sums = _sums(labels, weights, 0)
        for cell, label in labels.items():
            mean = sum(sums[cell[0], each] for each in LABELS) / len(LABELS)
            weights[cell] *= mean / max(sums[cell[0], label], 1e-12)
        sums = _sums(labels, weights, 1)
        for cell, label in labels.items():
            weights[cell] /= max(sums[cell[1], label], 1e-12)
    return weights


def _sums(
    labels: dict[_Cell, Label], weights: dict[_Cell, float], axis: int
) -> dict[tuple[int, Label], float]:
    sums = {(cell[axis], label): 0.0 for cell in labels for label in LABELS}
    for cell, label in labels.items():
        sums[cell[axis], label] += weights[cell]
    return sums


def _unevenness(labels: dict[_Cell, Label], weights: dict[_Cell, float]) -> float:
    """The share of pairs that would need another label to make all premises even."""
    sums = _sums(labels, weights, 0)
    off = 0.0
    for p in {cell[0] for cell in labels}:
        each = [sums[p, label] for label in LABELS]
        off += sum(max(0.0, one - sum(each) / len(LABELS)) for one in each)
    return off / sum(sums.values())


def _assemble(
    premises: Sequence[Form],
    hypotheses: Sequence[Form],
    labels: dict[_Cell, Label],
    weights: dict[_Cell, float],
) -> Blend:
    numbers = sorted({h for _, h in labels})
    tables: list[dict[Label, tuple[list[Form], list[float]]]] = []
    for number in numbers:
        table: dict[Label, tuple[list[Form], list[float]]] = {label: ([], []) for label in LABELS}
        for (p, h), label in labels.items():
            if h == number:
                table[label][0].append(premises[p])
                table[label][1].append(weights[p, h])
        tables.append(table)
    return Blend(tuple(hypotheses[h] for h in numbers), tuple(tables))
