"""And, or, not, if: facts about the same few things, put together.

"Or" includes both. "If" is the material conditional, so nothing follows from a false condition.
"""

from __future__ import annotations

from itertools import permutations, product

from headcount.inference.english import listed
from headcount.inference.logic import Worlds, together
from headcount.inference.phenomenon import Phenomenon, Slots
from headcount.inference.words import NAMES

_DISHES = listed(
    "bread butter cheese chicken chocolate coffee fish fruit ham honey juice milk rice salad soup "
    "sugar tea water wine yoghurt"
)
_TOOK = [("buy", "bought"), ("order", "ordered"), ("bring", "brought"), ("choose", "chose")]
_STATES = listed(
    "at home|at work|at school|in bed|in town|in the garden|in the kitchen|in the office|"
    "in the library|on holiday|on the phone|asleep|awake|busy|happy|angry|ill|hungry|late|tired",
    "|",
)


def _lists() -> Phenomenon:
    worlds = Worlds(
        dict(zip("abc", truth, strict=True)) for truth in product((False, True), repeat=3)
    )
    single, double = [], []
    for x in "abc":
        single += [
            worlds.form(f"{{who}} {{past}} {{{x}}}", lambda w: w[x]),
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
    return Phenomenon("connectives", together(single + double), single + double, slots)


def _conditionals() -> Phenomenon:
    worlds = Worlds(
        dict(zip("xyz", truth, strict=True)) for truth in product((False, True), repeat=3)
    )
    says = {
        (x, yes): f"{{{x}}} is {'' if yes else 'not '}{{{x}_state}}"
        for x, yes in product("xyz", (True, False))
    }
    plain = [worlds.form(text, lambda w: w[x] == yes) for (x, yes), text in says.items()]
    rules = []
    for (p, p_text), (q, q_text) in permutations(says.items(), 2):
        if p[0] == q[0]:
            continue
        rules.append(
            worlds.form(f"if {p_text}, then {q_text}", lambda w: w[p[0]] != p[1] or w[q[0]] == q[1])
        )
        for (r, r_text), (word, either) in product(says.items(), (("and", all), ("or", any))):
            if r[0] not in (p[0], q[0]):
                rules.append(
                    worlds.form(
                        f"if {p_text} {word} {r_text}, then {q_text}",
                        lambda w: not either(w[x] == yes for x, yes in (p, r)) or w[q[0]] == q[1],
                    )
                )
    premises = [
        rule & fact
        for rule, fact in product(rules, plain)
        if (rule & fact).truth not in (0, fact.truth)
    ]
    slots: Slots = {"x y z": NAMES, "x_state y_state z_state": _STATES}
    return Phenomenon("conditionals", premises, plain, slots, (". ",))


FACTS = [_lists(), _conditionals()]
