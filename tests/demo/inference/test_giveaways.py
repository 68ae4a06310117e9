"""Bags of words must not do: neither of one sentence nor of both."""

from __future__ import annotations

import pytest

from headcount.demo.inference import Pair, inference_split
from headcount.demo.run import FORMS, PHENOMENA

pytest.importorskip("sklearn")

from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression

Split = tuple[list[Pair], list[Pair]]

TEXTS = {
    "hypothesis": lambda pair: pair.hypothesis,
    "premise": lambda pair: pair.premise,
    "both": lambda pair: f"{pair.premise} {pair.hypothesis}",
    "apart": lambda pair: " ".join(
        [f"p_{word}" for word in pair.premise.split()]
        + [f"h_{word}" for word in pair.hypothesis.split()]
    ),
}


@pytest.fixture(scope="module", params=["all", "demo"])
def split(request: pytest.FixtureRequest) -> Split:
    if request.param == "demo":
        return inference_split(6000, 3000, 3, PHENOMENA, FORMS)
    return inference_split(6000, 3000, seed=3)


@pytest.mark.parametrize("name", TEXTS)
def test_bag_of_words_stays_near_chance(split: Split, name: str) -> None:
    texts = [[TEXTS[name](pair) for pair in part] for part in split]
    train, evaluation = ([pair.label for pair in part] for part in split)
    words = CountVectorizer(token_pattern=r"\w+").fit(texts[0])
    model = LogisticRegression(C=0.1, max_iter=100, tol=1e-2)
    model.fit(words.transform(texts[0]), train)
    accuracy = model.score(words.transform(texts[1]), evaluation)
    assert 0.28 < accuracy < 0.40
