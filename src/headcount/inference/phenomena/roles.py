"""Who did it to whom: active and passive, and who won against whom.

That the doctor called the nurse says nothing about whether the nurse called the doctor. A final has
one winner and one loser.
"""

from __future__ import annotations

from itertools import permutations, product

from headcount.inference.english import listed
from headcount.inference.logic import Worlds, together
from headcount.inference.phenomenon import Phenomenon, Slots
from headcount.inference.words import NAMES, PEOPLE

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


def _roles() -> Phenomenon:
    edges = list(permutations("abc", 2))
    worlds = Worlds(
        dict(zip(edges, truth, strict=True)) for truth in product((False, True), repeat=len(edges))
    )
    forms = []
    for x, y in edges:
        forms += [
            worlds.form(f"{{{x}}} {{past}} {{{y}}}", lambda w: w[x, y]),
            worlds.form(f"{{{y}}} was {{participle}} by {{{x}}}", lambda w: w[x, y]),
            worlds.form(f"{{{x}}} did not {{base}} {{{y}}}", lambda w: not w[x, y]),
            worlds.form(f"{{{y}}} was not {{participle}} by {{{x}}}", lambda w: not w[x, y]),
        ]
    slots: Slots = {"a b c": PEOPLE, "base past participle": _VERBS}
    return Phenomenon("roles", together(forms), forms, slots)


def _winners() -> Phenomenon:
    # Winner and loser of two finals; d is somebody else.
    worlds = Worlds(product(permutations("abcd", 2), repeat=2))
    forms = []
    for game in (0, 1):
        final = f"the {{{'mn'[game]}}} final"
        for x in "abc":
            forms += [
                worlds.form(f"{{{x}}} won {final}", lambda w: w[game][0] == x),
                worlds.form(f"{{{x}}} lost {final}", lambda w: w[game][1] == x),
            ]
        for x, y in permutations("abc", 2):
            forms += [
                worlds.form(f"{{{x}}} beat {{{y}}} in {final}", lambda w: w[game] == (x, y)),
                worlds.form(f"{{{y}}} lost {final} to {{{x}}}", lambda w: w[game] == (x, y)),
                worlds.form(
                    f"{{{x}}} played against {{{y}}} in {final}", lambda w: set(w[game]) == {x, y}
                ),
            ]
    return Phenomenon("winners", together(forms), forms, {"a b c": NAMES, "m n": _GAMES})


ROLES = [_roles(), _winners()]
