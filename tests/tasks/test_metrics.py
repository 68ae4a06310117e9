from __future__ import annotations

import math

import pytest

from headcount.tasks.metrics import score

ALL = ("accuracy", "f1", "macro_f1", "matthews_correlation", "combined")


def test_classification_by_hand() -> None:
    # True positives 2, false positives 1, false negatives 1, true negatives 2.
    got = score(ALL, [1, 1, 1, 0, 0, 0], [1, 1, 0, 1, 0, 0])
    assert got["accuracy"] == got["f1"] == pytest.approx(4 / 6)
    assert got["macro_f1"] == pytest.approx(4 / 6)
    assert got["matthews_correlation"] == pytest.approx((4 - 1) / 9)
    assert got["combined"] == pytest.approx((3 * 4 / 6 + 1 / 3) / 4)


def test_f1_is_of_the_positive_label() -> None:
    predicted, labels = [1, 1, 1, 0], [1, 1, 0, 1]
    assert score(("f1",), predicted, labels)["f1"] == pytest.approx(2 / 3)
    assert score(("f1",), predicted, labels, positive=0)["f1"] == 0


def test_correlations_by_hand() -> None:
    got = score(("pearson", "spearman", "combined"), [1.0, 2.0, 4.0], [1.0, 2.0, 3.0])
    assert got["pearson"] == pytest.approx(3 / math.sqrt(2 * 14 / 3))
    assert got["spearman"] == pytest.approx(1)
    assert got["combined"] == pytest.approx((got["pearson"] + 1) / 2)


def test_a_model_that_always_says_the_same_scores_zero() -> None:
    assert set(score(("pearson", "spearman"), [2.0, 2.0], [1.0, 3.0]).values()) == {0.0}
    assert set(score(("pearson", "spearman"), [math.nan, 2.0], [1.0, 3.0]).values()) == {0.0}
    assert score(("matthews_correlation", "f1"), [0, 0], [0, 1]) == {
        "matthews_correlation": 0.0,
        "f1": 0.0,
    }
