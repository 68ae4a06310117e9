"""All, some, most, none: of whom, doing what, and how many.

"The old students" says that there are old students, in a premise or a hypothesis, so "all of"
entails "some of". "Some", "most" and "at least" leave it open whether it is all: they mean what
they mean, not what a listener may guess.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations, product

from headcount.demo.inference.logic import Form, Worlds, together
from headcount.demo.inference.phenomenon import NUMERALS, Phenomenon, Slots, listed

_GROUPS = listed(
    "actors artists boys children dancers doctors farmers girls guests lawyers men nurses pilots "
    "players sailors singers soldiers students teachers tourists waiters women workers writers"
)
_SPECIAL = listed("British clever famous French friendly German happy Italian old rich tall tired")
_ACTED = listed("acted ate complained danced laughed played sang smiled spoke waited worked wrote")
_PLACES = listed(
    "at the party|at the station|at the wedding|in the garden|in the hall|in the hotel|in the park|"
    "in the village|on the beach|on the boat|on the bus|on the train",
    "|",
)
_CAME = listed(
    "came to the party|stayed at the hotel|were on the bus|took the train|passed the test|"
    "won a prize|joined the club|signed the letter|ate the cake|saw the film|missed the meeting|"
    "caught a cold",
    "|",
)
_COUNTED = listed(
    "actors artists bakers boys children cooks dancers dentists doctors drivers farmers girls "
    "judges lawyers men nurses painters pilots poets sailors singers soldiers students teachers "
    "tourists women writers"
)
_OF: dict[str, Callable[[int, int], bool]] = {
    "all of": lambda yes, no: no == 0,
    "each of": lambda yes, no: no == 0,
    "most of": lambda yes, no: yes > no,
    "some of": lambda yes, no: yes > 0,
    "at least one of": lambda yes, no: yes > 0,
    "none of": lambda yes, no: yes == 0,
    "not one of": lambda yes, no: yes == 0,
    "not all of": lambda yes, no: no > 0,
}
_NUMBERS: dict[str, Callable[[int, int], bool]] = {
    "exactly": lambda count, number: count == number,
    "at least": lambda count, number: count >= number,
    "at most": lambda count, number: count <= number,
    "more than": lambda count, number: count > number,
    "fewer than": lambda count, number: count < number,
}
_STANDARD = {"low": 3, "middle": 6, "high": 9}


def _proportions() -> Phenomenon:
    # How many do not act and how many do: special ones, others of the group, another group.
    worlds = Worlds(
        (special, plain, other)
        for special, plain, other in product(product(range(3), repeat=2), repeat=3)
        if any(special) and any(other)
    )
    members = {"{special} {group}": (0,), "{group}": (0, 1), "{others}": (2,)}
    forms = [
        worlds.form(
            f"{words} the {who} {{place}} {{acted}}",
            lambda w: test(sum(w[i][1] for i in parts), sum(w[i][0] for i in parts)),
        )
        for (words, test), (who, parts) in product(_OF.items(), members.items())
    ]
    slots: Slots = {"group others": _GROUPS, "special": _SPECIAL, "place": _PLACES, "acted": _ACTED}
    return Phenomenon("quantifiers", forms, together(forms), forms, slots)


def _counts() -> Phenomenon:
    worlds = Worlds(product(range(13), repeat=2))
    forms: list[list[Form]] = [[], []]
    for (words, test), (slot, number), group in product(
        _NUMBERS.items(), _STANDARD.items(), (0, 1)
    ):
        sentence = f"{words} {{{slot}}} {{{'xy'[group]}}} {{came}}"
        forms[group].append(worlds.form(sentence, lambda w: test(w[group], number)))
    more = [
        worlds.form("more {x} than {y} {came}", lambda w: w[0] > w[1]),
        worlds.form("fewer {x} than {y} {came}", lambda w: w[0] < w[1]),
    ]
    each = forms[0] + forms[1]
    # The labels hold for all numbers that are as far apart as the standard ones are: what matters
    # is the order of the numbers and that there is room between them.
    numbers = [
        tuple(NUMERALS[n] for n in three)
        for three in combinations(range(2, 13), 3)
        if min(three[1] - three[0], three[2] - three[1]) > 1
    ]
    slots: Slots = {"x y": _COUNTED, "low middle high": numbers, "came": _CAME}
    return Phenomenon("numbers", each, together(each), each + more, slots)


QUANTIFIERS = [_proportions(), _counts()]
