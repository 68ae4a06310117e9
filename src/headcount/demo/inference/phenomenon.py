"""A phenomenon: forms of premises and hypotheses, and the words that go into them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from headcount.demo.inference.english import finish
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
