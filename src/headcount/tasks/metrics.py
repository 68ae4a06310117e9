"""Metrics, as scikit-learn and scipy compute them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

Numbers = Any  # an array of one dimension

COMBINED = "combined"


def accuracy(predicted: Numbers, labels: Numbers) -> float:
    """The share of right answers."""
    return float(accuracy_score(labels, predicted))


def f1(predicted: Numbers, labels: Numbers, positive: int = 1) -> float:
    """F1 of one of two labels; 0 if it is never predicted."""
    return float(
        f1_score(np.equal(labels, positive), np.equal(predicted, positive), zero_division=0)
    )


def macro_f1(predicted: Numbers, labels: Numbers) -> float:
    """The mean of all labels' F1."""
    return float(f1_score(labels, predicted, average="macro", zero_division=0))


def matthews(predicted: Numbers, labels: Numbers) -> float:
    """Matthews correlation; 0 if all predictions are the same."""
    return float(matthews_corrcoef(labels, predicted))


def pearson(predicted: Numbers, labels: Numbers) -> float:
    """Pearson correlation; 0 if all predictions are the same, where it has no value."""
    return _correlation(pearsonr, predicted, labels)


def spearman(predicted: Numbers, labels: Numbers) -> float:
    """Spearman's rank correlation; 0 if all predictions are the same, where it has no value."""
    return _correlation(spearmanr, predicted, labels)


def _correlation(function: Callable[..., Any], predicted: Numbers, labels: Numbers) -> float:
    # A model that says the same of everything, or nothing at all, must lose every comparison; NaN
    # would not.
    if not (np.ptp(predicted) > 0 and np.ptp(labels) > 0):
        return 0.0
    return float(function(predicted, labels).statistic)


METRICS: dict[str, Callable[[Numbers, Numbers], float]] = {
    "accuracy": accuracy,
    "f1": f1,
    "macro_f1": macro_f1,
    "matthews_correlation": matthews,
    "pearson": pearson,
    "spearman": spearman,
}


def score(
    names: tuple[str, ...], predicted: Numbers, labels: Numbers, positive: int = 1
) -> dict[str, float]:
    """Several metrics of the same predictions.

    Args:
        names: of metrics in `METRICS`; `combined`, the mean of all before it, as GLUE reports.
        predicted: numbers of the predicted labels, or predicted values.
        labels: the right ones.
        positive: the number of the label that F1 is of.
    """
    scores: dict[str, float] = {}
    for name in names:
        if name == COMBINED:
            scores[name] = sum(scores.values()) / len(scores)
        elif name == "f1":
            scores[name] = f1(predicted, labels, positive)
        else:
            scores[name] = METRICS[name](predicted, labels)
    return scores
