"""Metrics of many resamples at once, for paired bootstrap tests.

A resample draws examples with replacement; every function gives one score per resample.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy.stats import rankdata

Array = np.ndarray[Any, Any]
# Takes predictions and references, one row per resample; gives a score per row.
Score = Callable[[Array, Array], Array]


def numbered(answers: Sequence[Sequence[Any]]) -> tuple[list[Array], list[str]]:
    """Labels as numbers, the same number for the same label in all rows, and their names."""
    names = sorted({str(answer) for row in answers for answer in row})
    numbers = {name: number for number, name in enumerate(names)}
    return [np.array([numbers[str(a)] for a in row]) for row in answers], names


def accuracy(predicted: Array, references: Array) -> Array:
    """Share of right answers."""
    share: Array = np.mean(predicted == references, axis=1)
    return share


def f1(predicted: Array, references: Array, label: int) -> Array:
    """F1 of one label; 0 if the label is neither predicted nor right."""
    said, right = predicted == label, references == label
    both = (said & right).sum(axis=1)
    either = said.sum(axis=1) + right.sum(axis=1)
    return np.where(either > 0, 2 * both / np.maximum(either, 1), 0.0)


def macro_f1(predicted: Array, references: Array, labels: int) -> Array:
    """The mean F1 of the labels that occur in a resample."""
    parts = np.stack([f1(predicted, references, label) for label in range(labels)])
    there = np.stack([((predicted == n) | (references == n)).any(axis=1) for n in range(labels)])
    mean: Array = (parts * there).sum(axis=0) / np.maximum(there.sum(axis=0), 1)
    return mean


def matthews(predicted: Array, references: Array, labels: int) -> Array:
    """Matthews correlation for any number of labels; 0 where all answers are the same."""
    n = predicted.shape[1]
    said = np.stack([(predicted == label).sum(axis=1) for label in range(labels)]).astype(float)
    right = np.stack([(references == label).sum(axis=1) for label in range(labels)]).astype(float)
    hits = (predicted == references).sum(axis=1)
    above = hits * n - (said * right).sum(axis=0)
    below = np.sqrt((n**2 - (said**2).sum(axis=0)) * (n**2 - (right**2).sum(axis=0)))
    return np.where(below > 0, above / np.where(below > 0, below, 1.0), 0.0)


def pearson(predicted: Array, references: Array) -> Array:
    """Pearson correlation; 0 where all predictions are the same."""
    x = predicted - predicted.mean(axis=1, keepdims=True)
    y = references - references.mean(axis=1, keepdims=True)
    below = np.sqrt((x**2).sum(axis=1) * (y**2).sum(axis=1))
    return np.where(below > 0, (x * y).sum(axis=1) / np.where(below > 0, below, 1.0), 0.0)


def spearman(predicted: Array, references: Array) -> Array:
    """Spearman's rank correlation."""
    return pearson(rankdata(predicted, axis=1), rankdata(references, axis=1))


def mean(predicted: Array, references: Array) -> Array:
    """Mean of losses, which need no references; perplexity grows with it."""
    average: Array = predicted.mean(axis=1)
    return average
