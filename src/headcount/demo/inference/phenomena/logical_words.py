"""Logical words: all, some, most, none and numbers; and, or, not, if.

"The old students" says that there are old students, in a premise or a hypothesis. So "all of"
entails "some of". "Some", "most" and "at least" leave open whether it is all: they mean what they
say, not what a listener may guess.

"Or" includes both. "If" is the material conditional, so nothing follows from a false condition.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations, permutations, product

from headcount.demo.inference.logic import Form, Worlds, together
from headcount.demo.inference.phenomenon import NAMES, Phenomenon, Slots, listed

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
_NUMERALS = listed("zero one two three four five six seven eight nine ten eleven twelve")


def _quantifiers() -> Phenomenon:
    # How many do not act, and how many do: of the special ones, of the others in their group, and
    # of another group.
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


def _numbers() -> Phenomenon:
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
    # The labels were decided with the standard numbers. They hold for all others too, as long as
    # the order is the same and at least one number lies between two of them.
    numbers = [
        tuple(_NUMERALS[n] for n in three)
        for three in combinations(range(2, 13), 3)
        if min(three[1] - three[0], three[2] - three[1]) > 1
    ]
    slots: Slots = {"x y": _COUNTED, "low middle high": numbers, "came": _CAME}
    return Phenomenon("numbers", each, together(each), each + more, slots)


_DISHES = listed(
    "bread butter cheese chicken chocolate coffee fish fruit ham honey juice milk rice salad soup "
    "sugar tea water wine yoghurt"
)
_TOOK = [("buy", "bought"), ("order", "ordered"), ("bring", "brought"), ("choose", "chose")]
_STATES = listed(
    "at church|at home|at school|at sea|at work|in bed|in court|in danger|in hospital|in love|"
    "in prison|in town|on duty|on holiday|very angry|very busy|very happy|very hungry|very late|"
    "very tired",
    "|",
)


def _connectives() -> Phenomenon:
    worlds = Worlds(
        dict(zip("abc", truth, strict=True)) for truth in product((False, True), repeat=3)
    )
    single, double = [], []
    for x in "abc":
        single += [
            worlds.form(f"{{who}} {{past}} some {{{x}}}", lambda w: w[x]),
            worlds.form(f"{{who}} did not {{base}} {{{x}}}", lambda w: not w[x]),
        ]
    for x, y in permutations("abc", 2):
        one, two = f"{{{x}}}", f"{{{y}}}"
        double += [
            worlds.form(f"{{who}} {{past}} {one} and {two}", lambda w: w[x] and w[y]),
            worlds.form(f"{{who}} {{past}} {one} or {two}", lambda w: w[x] or w[y]),
            worlds.form(f"{{who}} {{past}} {one} but not {two}", lambda w: w[x] and not w[y]),
            worlds.form(f"{{who}} {{past}} neither {one} nor {two}", lambda w: not (w[x] or w[y])),
        ]
    slots: Slots = {"a b c": _DISHES, "who": NAMES, "base past": _TOOK}
    return Phenomenon("connectives", double, together(single + double), single + double, slots)


def _conditionals() -> Phenomenon:
    worlds = Worlds(
        dict(zip("xyz", truth, strict=True)) for truth in product((False, True), repeat=3)
    )
    says = {
        (who, yes): f"{{{who}}} is {'' if yes else 'not '}{{{who}_state}}"
        for who, yes in product("xyz", (True, False))
    }
    facts = [worlds.form(text, lambda w: w[who] == yes) for (who, yes), text in says.items()]
    simple, compound = [], []
    for p, q, r in product(says, repeat=3):
        if len({p[0], q[0], r[0]}) == 3:
            text = f"if {says[p]}, then {says[r]}"
            simple.append(worlds.form(text, lambda w: not _is(w, p) or _is(w, r)))
            for word, every in (("and", all), ("or", any)):
                text = f"if {says[p]} {word} {says[q]}, then {says[r]}"
                holds = worlds.form(text, lambda w: not every((_is(w, p), _is(w, q))) or _is(w, r))
                compound.append(holds)
    slots: Slots = {"x y z": NAMES, "x_state y_state z_state": _STATES}
    premises, longer = _apply(simple, facts), _apply(compound, facts)
    return Phenomenon("conditionals", premises, longer, facts, slots, (". ",))


def _is(world: dict[str, bool], fact: tuple[str, bool]) -> bool:
    return world[fact[0]] == fact[1]


def _apply(rules: list[Form], facts: list[Form]) -> list[Form]:
    """Each rule with each fact that is consistent with it and does not imply it."""
    both = dict.fromkeys((rule & fact, fact) for rule, fact in product(rules, facts))
    return [form for form, fact in both if form.truth not in (0, fact.truth)]


QUANTIFIERS = [_quantifiers(), _numbers()]
CONNECTIVES = [_connectives(), _conditionals()]
