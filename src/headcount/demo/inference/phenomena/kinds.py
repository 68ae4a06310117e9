"""What words mean: kinds within kinds, places within places.

Kinds exclude each other, but who bought a rose may have bought a tulip too. Everybody lives
in one place, and works in one.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import TypeVar

from headcount.demo.inference.logic import Form, Worlds, together
from headcount.demo.inference.phenomenon import NAMES, Phenomenon, Slots

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


_World = TypeVar("_World")


def _either(
    worlds: Worlds[_World], yes: str, no: str, holds: Callable[[_World], bool]
) -> list[Form]:
    return [worlds.form(yes, holds), worlds.form(no, lambda w: not holds(w))]


def _kinds() -> Phenomenon:
    # Which are among the things: two kinds of a sort, another of that sort, a kind of a second
    # sort, another of that.
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
    # Where each of two people is: city, country, other city, other country, elsewhere.
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


KINDS = [_kinds(), _places()]
