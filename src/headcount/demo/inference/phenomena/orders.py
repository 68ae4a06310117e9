"""Who is taller, who came first, what stands left: orders, their converses and transitivity.

People may be of the same size or arrive together; of two things in space, one is further left, one
is further up and one is further back. Being taller has nothing to do with being older, nor has
being first to arrive with being first to leave.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations, product

from headcount.demo.inference.logic import Form, Worlds, decide
from headcount.demo.inference.phenomenon import NAMES, OBJECTS, Phenomenon, Slots, listed

# Two ways to put each order: x before y, y after x.
_SIZES = [
    ("taller", "shorter"),
    ("older", "younger"),
    ("faster", "slower"),
    ("stronger", "weaker"),
    ("richer", "poorer"),
    ("heavier", "lighter"),
    ("happier", "sadder"),
]
_EVENTS = listed("arrived|left|woke up|went home|fell asleep|sat down|got married|called", "|")
_SIDES = [("to the left of", "to the right of"), ("in front of", "behind"), ("above", "below")]


def _two(rows: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Every row beside every other."""
    return [one + two for one, two in permutations(rows, 2)]


def _order(
    name: str,
    before: str,
    after: str,
    ties: bool,
    things: list[str],
    rows: Sequence[tuple[str, ...]],
) -> Phenomenon:
    """Three things in two orders.

    Args:
        name: of the phenomenon.
        before: how to say that x ranks before y, in the words m and n of an order.
        after: how to say it the other way round, that y ranks after x.
        ties: whether two may rank equal.
        things: what to put in order.
        rows: words of an order.
    """
    ranks = [r for r in product(range(3), repeat=3) if len(set(r)) == 3 or (ties and min(r) == 0)]
    worlds = Worlds(product([dict(zip("abc", r, strict=True)) for r in ranks], repeat=2))
    forms: dict[frozenset[str], list[Form]] = {frozenset(two): [] for two in ("ab", "bc", "ac")}
    for order, (x, y), text in product((0, 1), permutations("abc", 2), (before, after)):
        sentence = text.format(
            x=f"{{{x}}}", y=f"{{{y}}}", m=f"{{{'mk'[order]}}}", n=f"{{{'nl'[order]}}}"
        )
        form = worlds.form(sentence, lambda w: w[order][x] < w[order][y])
        forms[frozenset((x, y))].append(form)
    ab, bc, ac = forms.values()
    # How a and c stand to each other is never said, only implied.
    links = [one & two for one, two in (*product(ab, bc), *product(bc, ab))]
    chains = [link for link in links if any(decide(link, form) != "neutral" for form in ac[:4])]
    slots: Slots = {"a b c": things, "m n k l": _two(rows)}
    return Phenomenon(name, ab, chains, ab + ac[:4], slots)


ORDERS = [
    _order("comparatives", "{x} is {m} than {y}", "{y} is {n} than {x}", True, NAMES, _SIZES),
    _order(
        "time",
        "{x} {m} {n} {y} did",
        "{y} {m} after {x} did",
        True,
        NAMES,
        [(event, "before") for event in _EVENTS],
    ),
    _order("space", "the {x} is {m} the {y}", "the {y} is {n} the {x}", False, OBJECTS, _SIDES),
]
