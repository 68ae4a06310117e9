"""What words mean: kinds within kinds, places within places, colours, opposites, managing to.

Kinds exclude each other, but someone who bought a rose may have bought a tulip too. Everybody lives
in one place, and works in one place. A thing has one colour. What is not hot need not be cold.
Someone who did something tried to do it, and someone who forgot to do it did not try.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations, product
from typing import TypeVar

from headcount.demo.inference.logic import Form, Worlds, together
from headcount.demo.inference.phenomenon import NAMES, OBJECTS, Phenomenon, Slots, listed

_World = TypeVar("_World")

_KINDS = {
    "flower": "rose tulip lily daisy",
    "dog": "poodle beagle terrier collie",
    "fruit": "apple pear banana orange",
    "vegetable": "carrot potato cabbage onion",
    "bird": "parrot sparrow pigeon owl",
    "tool": "hammer wrench drill spade",
    "tree": "birch oak pine maple",
    "fish": "salmon trout carp shark",
    "vehicle": "car truck bus van",
}
_FOUND = [
    ("draw", "drew"),
    ("find", "found"),
    ("paint", "painted"),
    ("see", "saw"),
    ("photograph", "photographed"),
    ("choose", "chose"),
    ("describe", "described"),
    ("want", "wanted"),
]
_STAYS = [("live", "lives"), ("work", "works"), ("study", "studies"), ("teach", "teaches")]
_CITIES = {
    "Austria": "Vienna Salzburg",
    "China": "Beijing Shanghai",
    "Egypt": "Cairo Alexandria",
    "England": "London Manchester",
    "France": "Paris Lyon",
    "Germany": "Berlin Hamburg",
    "Greece": "Athens",
    "India": "Delhi Mumbai",
    "Italy": "Rome Milan",
    "Japan": "Tokyo Kyoto",
    "Norway": "Oslo Bergen",
    "Poland": "Warsaw",
    "Russia": "Moscow",
    "Scotland": "Edinburgh Glasgow",
    "Spain": "Madrid Barcelona",
    "Sweden": "Stockholm",
}


def _kinds() -> Phenomenon:
    # Which of five kinds are among the things. Three are of one sort: {one}, {other} and a third
    # one without a name here. Two are of another sort: {foreign} and one without a name.
    worlds = Worlds(product((False, True), repeat=5))
    members = {
        "{one}": (0,),
        "{other}": (1,),
        "{sort}": (0, 1, 2),
        "{foreign}": (3,),
        "{foreign_sort}": (3, 4),
    }
    forms, only = [], []
    for noun, leaves in members.items():
        forms += _either(
            worlds,
            f"{{who}} {{past}} a {noun}",
            f"{{who}} did not {{base}} a {noun}",
            lambda w: any(w[i] for i in leaves),
        )
        only.append(
            worlds.form(
                f"the only thing that {{who}} {{past}} was a {noun}",
                lambda w: sum(w) == 1 and any(w[i] for i in leaves),
            )
        )
    rows = [
        (one, other, sort, foreign, foreign_sort)
        for sort, row in _KINDS.items()
        for one, other in product(row.split(), repeat=2)
        if one != other
        for foreign_sort, row in _KINDS.items()
        if foreign_sort != sort
        for foreign in row.split()
    ]
    slots: Slots = {"who": NAMES, "base past": _FOUND, "one other sort foreign foreign_sort": rows}
    return Phenomenon("kinds", only + forms, together(forms), forms, slots)


def _places() -> Phenomenon:
    # Where each of two people is: in the city, elsewhere in its country, in the other city (town),
    # elsewhere in that country (land), or in neither country.
    worlds = Worlds(product(range(5), repeat=2))
    members = {"city": (0,), "country": (0, 1), "town": (2,), "land": (2, 3)}
    forms = []
    for person, (place, leaves) in product((0, 1), members.items()):
        who = "{" + "xy"[person] + "}"
        forms += _either(
            worlds,
            f"{who} {{stays}} in {{{place}}}",
            f"{who} does not {{stay}} in {{{place}}}",
            lambda w: w[person] in leaves,
        )
    rows = [
        (city, country, town, land)
        for country, row in _CITIES.items()
        for city in row.split()
        for land, row in _CITIES.items()
        if land != country
        for town in row.split()
    ]
    slots: Slots = {
        "x y": NAMES,
        "stay stays": _STAYS,
        "city country town land": rows,
    }
    return Phenomenon("places", forms, together(forms), forms, slots)


def _either(
    worlds: Worlds[_World], yes: str, no: str, holds: Callable[[_World], bool]
) -> list[Form]:
    """A sentence and its negation."""
    return [worlds.form(yes, holds), worlds.form(no, lambda w: not holds(w))]


_COLOURS = listed("black blue brown green grey orange pink purple red white yellow")
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
    slots: Slots = {"who": NAMES, "x y": OBJECTS, "a b c": _COLOURS}
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


def _verbs() -> Phenomenon:
    # For each of two people: whether they did it, and whether they tried to.
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


KINDS = [_kinds(), _places()]
PROPERTIES = [_colours(), _opposites(), _verbs()]
