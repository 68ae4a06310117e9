"""What is promised of the pairs as a whole: the same for a seed, balanced, and no giveaways."""

from __future__ import annotations

import random
from collections import Counter, defaultdict

import pytest

from headcount.demo.inference import LABELS, PHENOMENA, Pair, inference_pairs, inference_split
from headcount.errors import HeadcountError

MANY = 60_000


@pytest.fixture(scope="module")
def many() -> list[Pair]:
    return inference_pairs(MANY, seed=1)


def test_depend_on_the_seed_alone() -> None:
    random.seed(0)
    state = random.getstate()
    once = inference_split(300, 90, seed=5)
    assert random.getstate() == state
    random.seed(1)
    assert inference_split(300, 90, seed=5) == once
    assert inference_split(300, 90, seed=6) != once


def test_are_distinct(many: list[Pair]) -> None:
    assert len(many) == MANY
    assert len({pair.premise for pair in many}) == MANY


def test_have_each_label_equally_often(many: list[Pair]) -> None:
    assert set(Counter(pair.label for pair in many).values()) == {MANY // 3}
    by_phenomenon = Counter((pair.phenomenon, pair.label) for pair in many)
    assert len(by_phenomenon) == len(PHENOMENA) * len(LABELS)
    assert max(by_phenomenon.values()) - min(by_phenomenon.values()) <= 1


@pytest.mark.parametrize("size", [0, 1, 3, 100, 1000])
def test_are_as_many_as_asked_for(size: int) -> None:
    pairs = inference_pairs(size, seed=0)
    counts = Counter(pair.label for pair in pairs)
    assert len(pairs) == size
    assert max(counts[label] for label in LABELS) - min(counts[label] for label in LABELS) <= 1


def test_every_hypothesis_has_each_label_equally_often(many: list[Pair]) -> None:
    labels = defaultdict(Counter)
    for pair in many:
        labels[pair.hypothesis][pair.label] += 1
    assert all(len(set(count.values())) == 1 and len(count) == 3 for count in labels.values())


def test_are_short_and_spelt_like_sentences(many: list[Pair]) -> None:
    for pair in many:
        assert 4 <= len(pair.premise.split()) <= 24
        assert 4 <= len(pair.hypothesis.split()) <= 12
        for text in (pair.premise, pair.hypothesis):
            assert text.endswith(".")
            assert not set("{}") & set(text)
            assert all(sentence[0].isupper() for sentence in text.split(". "))


def test_train_and_evaluation_share_no_premise() -> None:
    train, evaluation = inference_split(8000, 1000, seed=2)
    assert (len(train), len(evaluation)) == (8000, 1000)
    assert not {pair.premise for pair in train} & {pair.premise for pair in evaluation}
    assert {pair.phenomenon for pair in evaluation} == {each.name for each in PHENOMENA}


def test_refuses_a_negative_size() -> None:
    with pytest.raises(HeadcountError, match="-1"):
        inference_pairs(-1, seed=0)
