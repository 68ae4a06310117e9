"""A phenomenon: forms of premises and hypotheses, and the words that go into them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from headcount.demo.inference.logic import Form

Slots = Mapping[str, Sequence[str | tuple[str, ...]]]
Fill = dict[str, str]


@dataclass(frozen=True)
class Phenomenon:
    """One kind of inference.

    Attributes:
        name: how the pairs are marked.
        premises: forms to choose from; any may meet any hypothesis.
        longer: more premises, of two sentences each, of which fewer are chosen.
        hypotheses: forms of one sentence.
        slots: for the names of some slots, separated by blanks, what fills them: different words
            out of a list, or a row out of a table.
        joints: what may stand between two sentences of a premise.
    """

    name: str
    premises: Sequence[Form]
    longer: Sequence[Form]
    hypotheses: Sequence[Form]
    slots: Slots
    joints: tuple[str, ...] = (". ", ", and ")

    def fill(self, random: Random) -> Fill:
        """Words for all slots."""
        words: Fill = {}
        for names, table in self.slots.items():
            keys = names.split()
            row = random.choice(table)
            if isinstance(row, str):
                row = tuple(str(word) for word in random.sample(table, len(keys)))
            words.update(zip(keys, row, strict=True))
        return words

    def write(self, form: Form, fill: Fill, random: Random) -> str:
        """The form in English."""
        text = random.choice(self.joints).join(form.sentences)
        return finish(text.format(**fill))


def listed(text: str, between: str | None = None) -> list[str]:
    """Words, or what stands between the signs, as a list that is easy to read and to extend."""
    return text.split(between)


NUMERALS = listed("zero one two three four five six seven eight nine ten eleven twelve")

# Spelt with a vowel but spoken with a consonant, and the reverse.
_A = ("uni", "use", "euro", "one")
_AN = ("hour", "honest", "heir", "honour")
_ARTICLE = re.compile(r"\b([Aa]) (?=(\w+))")
_START = re.compile(r"(?:^|(?<=\. ))\w")


def finish(text: str) -> str:
    """Sentences with the right articles, capital letters and a full stop."""
    text = _ARTICLE.sub(lambda found: f"{found[1]}{_n(found[2])} ", text)
    return _START.sub(lambda found: found[0].upper(), text) + "."


def _n(word: str) -> str:
    word = word.lower()
    if word.startswith(_AN):
        return "n"
    return "n" if word[0] in "aeiou" and not word.startswith(_A) else ""


NAMES = listed(
    "Adam Alice Anna Ben Carl Clara David Diana Emma Eric Frank Grace Helen Henry Ian Jack Jane "
    "Julia Kate Laura Leo Lisa Lucy Mark Mary Mike Nina Oliver Oscar Paul Peter Rachel Robert Rosa "
    "Ruth Sam Sarah Simon Sophie Thomas Tina Tom Victor Walter"
)

PEOPLE = [
    f"the {who}"
    for who in listed(
        "actor artist baker banker barber captain chef clerk coach dancer dentist doctor driver "
        "editor farmer gardener guard judge lawyer manager mechanic minister nurse painter pilot "
        "plumber poet reporter sailor singer soldier student teacher waiter writer"
    )
]

COLOURS = listed("black blue brown green grey orange pink purple red white yellow")

# What one can own, paint and move.
OBJECTS = listed(
    "bag basket bed bicycle blanket book bottle bowl box bucket candle carpet chair clock coat cup "
    "curtain cushion desk drum flag guitar hat jacket jar kite ladder lamp mirror mug pen piano "
    "pillow plate radio scarf shelf shirt sofa stool suitcase table towel trunk umbrella vase"
)
