"""Spelling."""

from __future__ import annotations

import re

import pytest

from headcount.demo.inference import inference_pairs
from headcount.demo.inference.phenomenon import finish


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a apple fell", "An apple fell."),
        ("anna saw a owl. a dog barked", "Anna saw an owl. A dog barked."),
        ("it took a hour", "It took an hour."),
        ("he has a uniform", "He has a uniform."),
        ("the banana is ripe", "The banana is ripe."),
    ],
)
def test_articles_and_capitals(text: str, expected: str) -> None:
    assert finish(text) == expected


def test_pairs_use_a_and_an_as_spoken() -> None:
    articles = [
        found
        for pair in inference_pairs(3000, seed=0)
        for found in re.findall(r"\b([Aa]n?) (\w)", f"{pair.premise} {pair.hypothesis}")
    ]
    assert {article.lower() for article, _ in articles} == {"a", "an"}
    assert all((first in "aeiou") == (len(article) == 2) for article, first in articles)
