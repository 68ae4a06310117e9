"""When a head has a role: the thresholds of Voita et al. (2019), Section 5, and one more role.

Heads for duplicates are not in the paper; Wang et al. (2022) found them in GPT-2. In tasks that
compare two sentences, these heads find the words that both sentences have.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Role = Literal["positional", "syntactic", "rare", "duplicate"]
Direction = Literal["governor", "dependent"]

ROLES: tuple[Role, ...] = ("positional", "syntactic", "rare", "duplicate")
# Not syntax: the root has no governor, and punctuation has one only by convention.
NO_RELATIONS = ("root", "punct")


@dataclass(frozen=True)
class Criteria:
    """The thresholds; a head that meets several has several roles.

    Only real tokens count, as in the paper. Weights on [CLS], [SEP] and other special tokens are
    left out before the largest weight is taken, and special tokens are no queries. A query that
    sees fewer than two real tokens has no choice, so it does not count either.

    Attributes:
        positional: least share of cases in which the largest weight is on one relative position.
            Only cases where the sentence has a token at this position count.
        position_exists: a relative position counts only if at least this share of the tokens has
            it. Far positions are often hit by heads that look at the sentence's end.
        syntactic: least gain over the baseline. The gain is how much more often the largest weight
            is on the governor, or the dependent, than the best fixed relative position would be.
        cases: least number of cases of a relation, and of duplicates.
        rare: least share of cases in which the largest weight is on one of the `rarest` least
            frequent tokens. The paper reports 83 % for one data set and "more than 50 %" for the
            other.
        rare_gain: least gain of that share over chance, which is high in short sentences.
        rarest: how many tokens of a sentence count as rare; tokens that are equally rare count too.
        common: a sentence counts only if its least frequent token is not among this many most
            frequent tokens of the text.
        duplicate: least share of cases in which the largest weight is on another occurrence of the
            same token. Only tokens that occur twice count.
        duplicate_gain: least gain of that share over chance.
        special: a head is marked if its largest weight of all is on a special token in more than
            this share of cases. Such a head mostly rests, and does little with real tokens.
    """

    positional: float = 0.9
    position_exists: float = 0.5
    syntactic: float = 0.1
    cases: int = 100
    rare: float = 0.5
    rare_gain: float = 0.1
    rarest: int = 2
    common: int = 500
    duplicate: float = 0.5
    duplicate_gain: float = 0.1
    special: float = 0.5


def offset_text(offset: int) -> str:
    """A relative position as text: −1, 0, +1."""
    return f"{offset:+d}".replace("-", "−") if offset else "0"
