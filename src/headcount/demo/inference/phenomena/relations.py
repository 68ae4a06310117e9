"""Relations: who is taller, who came first, what is on the left; who did what to whom.

People may have the same size or arrive together. Of two things in space, one is further left, one
is further up and one is further back. Being taller has nothing to do with being older. Arriving
first has nothing to do with leaving first.

That the doctor called the nurse says nothing about whether the nurse called the doctor. A final has
one winner and one loser.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations, product

from headcount.demo.inference.logic import Form, Worlds, decide, together
from headcount.demo.inference.phenomenon import NAMES, OBJECTS, Phenomenon, Slots, listed

# Two words for each order: x is taller than y, y is shorter than x.
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
    """Every row joined with every other row."""
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
        name: the name of the phenomenon.
        before: a template that says that x ranks before y; m and n are the words of an order.
        after: a template that says the same the other way round: y ranks after x.
        ties: whether two things may have the same rank.
        things: words for what is put in order.
        rows: the words m and n of each order.
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
    # The order of a and c is never said, only implied.
    links = [one & two for one, two in (*product(ab, bc), *product(bc, ab))]
    chains = [link for link in links if any(decide(link, form) != "neutral" for form in ac[:4])]
    slots: Slots = {"a b c": things, "m n k l": _two(rows)}
    return Phenomenon(name, ab, chains, ab + ac[:4], slots)


_PEOPLE = [
    f"the {who}"
    for who in listed(
        "actor artist baker banker barber captain chef clerk coach dancer dentist doctor driver "
        "editor farmer gardener guard judge lawyer manager mechanic minister nurse painter pilot "
        "plumber poet reporter sailor singer soldier student teacher waiter writer"
    )
]
_VERBS = [
    ("call", "called", "called"),
    ("thank", "thanked", "thanked"),
    ("see", "saw", "seen"),
    ("help", "helped", "helped"),
    ("hear", "heard", "heard"),
    ("invite", "invited", "invited"),
    ("follow", "followed", "followed"),
    ("forget", "forgot", "forgotten"),
    ("visit", "visited", "visited"),
    ("choose", "chose", "chosen"),
    ("push", "pushed", "pushed"),
    ("warn", "warned", "warned"),
    ("find", "found", "found"),
    ("teach", "taught", "taught"),
    ("praise", "praised", "praised"),
    ("blame", "blamed", "blamed"),
]
_GAMES = listed("badminton boxing chess darts golf judo squash tennis")
_WHERE = listed("city club national office regional school university village youth")


def _roles() -> Phenomenon:
    edges = list(permutations("abc", 2))
    worlds = Worlds(
        dict(zip(edges, truth, strict=True)) for truth in product((False, True), repeat=len(edges))
    )
    forms = {
        (x, y): [
            worlds.form(f"{{{x}}} {{past}} {{{y}}}", lambda w: w[x, y]),
            worlds.form(f"{{{y}}} was {{participle}} by {{{x}}}", lambda w: w[x, y]),
            worlds.form(f"{{{x}}} did not {{base}} {{{y}}}", lambda w: not w[x, y]),
            worlds.form(f"{{{y}}} was not {{participle}} by {{{x}}}", lambda w: not w[x, y]),
        ]
        for x, y in edges
    }
    near = [*forms["a", "b"], *forms["b", "a"]]
    longer = together([*near, *forms["b", "c"], *forms["c", "a"]])
    slots: Slots = {"a b c": _PEOPLE, "base past participle": _VERBS}
    return Phenomenon("roles", near, longer, near, slots)


def _winners() -> Phenomenon:
    # Winner and loser of two finals; d is somebody else.
    worlds = Worlds(product(permutations("abcd", 2), repeat=2))
    forms: tuple[list[Form], list[Form]] = ([], [])
    for game in (0, 1):
        final = f"the {{where}} {{{'mn'[game]}}} final"
        for x in "abc":
            forms[game].extend(
                (
                    worlds.form(f"{{{x}}} won {final}", lambda w: w[game][0] == x),
                    worlds.form(f"{{{x}}} lost {final}", lambda w: w[game][1] == x),
                )
            )
        for x, y in permutations("abc", 2):
            met = f"{{{x}}} played against {{{y}}} in {final}"
            forms[game].extend(
                (
                    worlds.form(f"{{{x}}} beat {{{y}}} in {final}", lambda w: w[game] == (x, y)),
                    worlds.form(f"{{{y}}} lost {final} to {{{x}}}", lambda w: w[game] == (x, y)),
                    worlds.form(met, lambda w: set(w[game]) == {x, y}),
                )
            )
    longer = [one & two for one, two in product(*forms)]
    slots: Slots = {"a b c": NAMES, "m n": _GAMES, "where": _WHERE}
    return Phenomenon("winners", forms[0], longer, [*forms[0], *forms[1]], slots)


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
ROLES = [_roles(), _winners()]
