"""When a head has a role: the thresholds of Voita et al. (2019), Section 5, and one role more.

Heads for duplicates are not in the paper; Wang et al. (2022) found them in GPT-2. Where two
sentences are compared, they are the ones that find the words which both have.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Role = Literal["positional", "syntactic", "rare", "duplicate"]
Direction = Literal["governor", "dependent"]

ROLES: tuple[Role, ...] = ("positional", "syntactic", "rare", "duplicate")
# Of no interest as syntax: the root has no governor, and punctuation has one by convention alone.
NO_RELATIONS = ("root", "punct")


@dataclass(frozen=True)
class Criteria:
    """Thresholds; a head that meets several has several roles.

    The paper looks at real tokens only, and so do we: weights on [CLS], [SEP] and other special
    tokens are left out before the largest one is taken, and special tokens do not count as
    queries. A query that sees fewer than two real tokens has no choice and does not count either.

    Attributes:
        positional: the largest weight is on one relative position in so many of the cases where
            the sentence has a token there.
        position_exists: relative positions that fewer of the tokens have are not looked at: a far
            one is hit by heads that look at the sentence's end.
        syntactic: the largest weight is on the governor, or on the dependent, so much more often
            than on the best fixed relative position for the relation.
        cases: relations with fewer of them are left out, and so are duplicates.
        rare: the largest weight is on one of the `rarest` least frequent tokens so often. The
            paper tells 83 % of its one data set and "more than 50 %" of its other.
        rare_gain: and so much more often than by chance, which is large in short sentences.
        rarest: how many tokens of a sentence count as its rare ones, and all that are as rare.
        common: sentences count only if their least frequent token is not among so many most
            frequent tokens of the text.
        duplicate: where a token stands elsewhere too, the largest weight is there so often.
        duplicate_gain: and so much more often than by chance.
        special: a head whose largest weight of all is more often than this on a special token
            is marked: what it does with real tokens is what little it does beside resting.
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
    """A relative position as it is written: −1, 0, +1."""
    return f"{offset:+d}".replace("-", "−") if offset else "0"
