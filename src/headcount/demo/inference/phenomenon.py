"""A phenomenon: forms of premises and hypotheses, and the words that fill them.

Here are also the rules of spelling that turn a filled form into English, and the words that several
phenomena use.
"""

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
        name: the name that its pairs carry.
        premises: forms to choose from; any of them can go with any hypothesis.
        longer: premises of two sentences each; fewer of these are chosen.
        hypotheses: forms of one sentence.
        slots: what fills the slots. A key is one slot or several, separated by blanks. Its value
            is a list, which gives each slot a different word, or a table, which gives them a row.
        joints: what may connect the two sentences of a premise.
    """

    name: str
    premises: Sequence[Form]
    longer: Sequence[Form]
    hypotheses: Sequence[Form]
    slots: Slots
    joints: tuple[str, ...] = (". ", ", and ")

    def fill(self, random: Random) -> Fill:
        """Draw words for all slots."""
        words: Fill = {}
        for names, table in self.slots.items():
            keys = names.split()
            row = random.choice(table)
            if isinstance(row, str):
                row = tuple(str(word) for word in random.sample(table, len(keys)))
            words.update(zip(keys, row, strict=True))
        return words

    def write(self, form: Form, fill: Fill, random: Random) -> str:
        """Write a form in English, with these words in its slots."""
        text = random.choice(self.joints).join(form.sentences)
        return finish(text.format(**fill))


_ARTICLE = re.compile(r"\b([Aa]) (?=(\w+))")
_START = re.compile(r"(?:^|(?<=\. ))\w")
# Spelt with a vowel but spoken with a consonant, and the reverse.
_A = ("uni", "use", "euro", "one")
_AN = ("hour", "honest", "heir", "honour")


def finish(text: str) -> str:
    """Correct the articles and capital letters of a text, and end it with a full stop."""
    text = _ARTICLE.sub(lambda found: f"{found[1]}{_n(found[2])} ", text)
    return _START.sub(lambda found: found[0].upper(), text) + "."


def _n(word: str) -> str:
    """The n of `an` before a word that begins with a spoken vowel."""
    word = word.lower()
    if word.startswith(_AN):
        return "n"
    return "n" if word[0] in "aeiou" and not word.startswith(_A) else ""


def listed(text: str, between: str | None = None) -> list[str]:
    """Split a text into words, so that a list of them is easy to read and to extend.

    Args:
        text: the words.
        between: the sign between them, if single words may contain blanks.
    """
    return text.split(between)


NAMES = listed(
    "Adam Alice Anna Ben Carl Clara David Diana Emma Eric Frank Grace Helen Henry Ian Jack Jane "
    "Julia Kate Laura Leo Lisa Lucy Mark Mary Mike Nina Oliver Oscar Paul Peter Rachel Robert Rosa "
    "Ruth Sam Sarah Simon Sophie Thomas Tina Tom Victor Walter"
)

# What one can own, paint and move.
OBJECTS = listed(
    "bag basket bed bicycle blanket book bottle bowl box bucket candle carpet chair clock coat cup "
    "curtain cushion desk drum flag guitar hat jacket jar kite ladder lamp mirror mug pen piano "
    "pillow plate radio scarf shelf shirt sofa stool suitcase table towel trunk umbrella vase"
)
