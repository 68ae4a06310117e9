"""And, or, not, if: facts about the same few things, put together.

"Or" includes both. "If" is the material conditional, so nothing follows from a false condition.
"""

from __future__ import annotations

from itertools import permutations, product

from headcount.demo.inference.logic import Form, Worlds, together
from headcount.demo.inference.phenomenon import NAMES, Phenomenon, Slots, listed

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


def _lists() -> Phenomenon:
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
    """Rules, each with a fact that agrees with it and does not say it all."""
    both = dict.fromkeys((rule & fact, fact) for rule, fact in product(rules, facts))
    return [form for form, fact in both if form.truth not in (0, fact.truth)]


FACTS = [_lists(), _conditionals()]
