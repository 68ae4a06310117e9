"""Small print of English spelling."""

from __future__ import annotations

import re


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
