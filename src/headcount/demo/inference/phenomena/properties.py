"""Which thing is how: colours, opposites, and what people managed to do.

A thing has one colour. What is not hot need not be cold. Who did something tried to, and who forgot
to do it did not try.
"""

from __future__ import annotations

from itertools import permutations, product

from headcount.demo.inference.logic import Worlds, together
from headcount.demo.inference.phenomenon import COLOURS, NAMES, OBJECTS, Phenomenon, Slots, listed

_SCALES = {
    ("hot", "cold"): "bath coffee milk pizza room soup tea",
    ("cheap", "expensive"): "bicycle car coat house phone ring watch",
    ("large", "small"): "bag dog garden hat house kitchen office",
    ("fast", "slow"): "bicycle boat bus car horse train truck",
    ("heavy", "light"): "bag box chair coat ladder suitcase table",
    ("old", "new"): "boat car coat house jacket phone watch",
    ("loud", "quiet"): "car clock dog fridge office street voice",
    ("easy", "hard"): "exam homework job question task test work",
}
_TASKS = [
    ("open", "opened"),
    ("close", "closed"),
    ("lock", "locked"),
    ("clean", "cleaned"),
    ("paint", "painted"),
    ("repair", "repaired"),
    ("sell", "sold"),
]
_OF_USE = listed("cabin car cupboard garage gate house piano safe shed shop suitcase van wardrobe")


def _colours() -> Phenomenon:
    worlds = Worlds(product(range(4), repeat=2))
    forms = []
    for thing, colour in product((0, 1), range(3)):
        the, red = f"{{who}}'s {{{'xy'[thing]}}}", f"{{{'abc'[colour]}}}"
        forms += [
            worlds.form(f"{the} is {red}", lambda w: w[thing] == colour),
            worlds.form(f"{the} is not {red}", lambda w: w[thing] != colour),
        ]
    for thing, (one, two) in product((0, 1), permutations(range(3), 2)):
        sentence = f"{{who}}'s {{{'xy'[thing]}}} is {{{'abc'[one]}}} or {{{'abc'[two]}}}"
        forms.append(worlds.form(sentence, lambda w: w[thing] in (one, two)))
    slots: Slots = {"who": NAMES, "x y": OBJECTS, "a b c": COLOURS}
    return Phenomenon("colours", forms, together(forms), forms, slots)


def _opposites() -> Phenomenon:
    worlds = Worlds(product(("{high}", "{low}", "neither"), repeat=2))
    forms = []
    for thing in (0, 1):
        the = f"{{who}}'s {{{'xy'[thing]}}} is"
        for end in ("{high}", "{low}"):
            forms += [
                worlds.form(f"{the} {end}", lambda w: w[thing] == end),
                worlds.form(f"{the} not {end}", lambda w: w[thing] != end),
            ]
        forms.append(
            worlds.form(f"{the} neither {{high}} nor {{low}}", lambda w: w[thing] == "neither")
        )
    rows = [(*ends, x, y) for ends, row in _SCALES.items() for x, y in permutations(row.split(), 2)]
    slots: Slots = {"who": NAMES, "high low x y": rows}
    return Phenomenon("opposites", forms, together(forms), forms, slots)


def _tasks() -> Phenomenon:
    # For each of two people: did it, tried to.
    person = [(True, True), (False, True), (False, False)]
    worlds = Worlds(product(person, repeat=2))
    verbs = {
        "{past}": lambda did, tried: did,
        "did not {base}": lambda did, tried: not did,
        "managed to {base}": lambda did, tried: did,
        "tried to {base}": lambda did, tried: tried,
        "tried in vain to {base}": lambda did, tried: tried and not did,
        "forgot to {base}": lambda did, tried: not tried,
        "remembered to {base}": lambda did, tried: did,
        "did not even try to {base}": lambda did, tried: not tried,
    }
    forms = []
    for who, (verb, test) in product((0, 1), verbs.items()):
        forms.append(worlds.form(f"{{{'xy'[who]}}} {verb} the {{thing}}", lambda w: test(*w[who])))
    slots: Slots = {"x y": NAMES, "base past": _TASKS, "thing": _OF_USE}
    return Phenomenon("verbs", forms, together(forms), forms, slots)


PROPERTIES = [_colours(), _opposites(), _tasks()]
