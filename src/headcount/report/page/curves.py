"""What the page draws of one evaluation set: the metric against kept heads."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from headcount.report.figures.metric import FEW, born_heads
from headcount.report.figures.style import axis_label, unit
from headcount.report.study_data import Comparison
from headcount.runs.result import in_percent


def curve_data(comparison: Comparison, group: int) -> dict[str, Any]:
    """Means with their spread, and the result of every seed.

    Args:
        comparison: of which model, task and evaluation set.
        group: the number of its model and task.
    """
    scale = unit(comparison.metric)
    label = axis_label(comparison.metric)
    born = born_heads(comparison)
    unpruned = comparison.unpruned["value"]
    return {
        "title": comparison.title,
        "group": group,
        "split": comparison.split,
        "label": label,
        "metric": label.removesuffix(", %"),
        "unit": " %" if in_percent(comparison.metric) else "",
        "born": int(born),
        "few": FEW * born,
        "unpruned": None if unpruned.empty else rounded(scale * unpruned.mean(), 6),
        "means": _by_method(comparison, comparison.counted, lambda of: _means(of, scale)),
        "seeds": _by_method(comparison, comparison.counted, lambda of: _each(of, "k", scale)),
        "own": _by_method(comparison, comparison.own_count, lambda of: _each(of, "heads", scale)),
    }


def rounded(value: float, digits: int = 4) -> float | None:
    """To so many significant digits, which keeps the page small; None for what is no number."""
    return float(f"{value:.{digits}g}") if math.isfinite(value) else None


def _by_method(comparison: Comparison, rows: pd.DataFrame, what: Any) -> dict[str, Any]:
    found = ((method, rows[rows["method"] == method]) for method in comparison.methods)
    return {method: what(of) for method, of in found if not of.empty}


def _means(rows: pd.DataFrame, scale: float) -> list[list[float | None]]:
    """Heads, mean, standard deviation, number of seeds."""
    found = rows.groupby("k")["value"].agg(["mean", "std", "count"])
    return [
        [k, rounded(scale * mean, 6), rounded(scale * std, 6), count]
        for k, mean, std, count in found.itertuples()
    ]


def _each(rows: pd.DataFrame, heads: str, scale: float) -> list[list[float | None]]:
    """Heads, value, seed."""
    columns = zip(rows[heads], rows["value"], rows["seed"], strict=True)
    return [[k, rounded(scale * value, 6), int(seed)] for k, value, seed in columns]
