"""Metrics of many resamples of the same examples at once, for paired bootstrap tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy.stats import rankdata

Array = np.ndarray[Any, Any]
# Predictions and references, one row per resample; a score for each row.
Score = Callable[[Array, Array], Array]


def numbered(answers: Sequence[Sequence[Any]]) -> tuple[list[Array], list[str]]:
    """Labels as numbers, the same number for the same label everywhere, and their names."""
    names = sorted({str(answer) for row in answers for answer in row})
    numbers = {name: number for number, name in enumerate(names)}
    return [np.array([numbers[str(a)] for a in row]) for row in answers], names


def accuracy(predicted: Array, references: Array) -> Array:
    """Share of right answers."""
    share: Array = np.mean(predicted == references, axis=1)
    return share


def f1(predicted: Array, references: Array, label: int) -> Array:
    """F1 of one label; 0 if it is neither predicted nor right."""
    said, right = predicted == label, references == label
    both = (said & right).sum(axis=1)
    either = said.sum(axis=1) + right.sum(axis=1)
    return np.where(either > 0, 2 * both / np.maximum(either, 1), 0.0)


def macro_f1(predicted: Array, references: Array, labels: int) -> Array:
    """The mean of all labels' F1, over the labels that a resample has."""
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
    """Of losses, which need no reference; perplexity rises and falls with it."""
    average: Array = predicted.mean(axis=1)
    return average
