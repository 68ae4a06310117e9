"""Who did it to whom: active and passive, and who won against whom.

That the doctor called the nurse says nothing about whether the nurse called the doctor. A final has
one winner and one loser.
"""

from __future__ import annotations

from itertools import permutations, product

from headcount.demo.inference.logic import Form, Worlds, together
from headcount.demo.inference.phenomenon import NAMES, PEOPLE, Phenomenon, Slots, listed

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
    slots: Slots = {"a b c": PEOPLE, "base past participle": _VERBS}
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


ROLES = [_roles(), _winners()]
