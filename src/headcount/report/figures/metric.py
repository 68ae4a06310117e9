"""The metric against the number of kept heads, and its zoom on few heads."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from headcount.report.figures.style import (
    GREY,
    axis_label,
    dress,
    head,
    legend,
    look,
    new_figure,
    unit,
)
from headcount.report.study_data import Comparison

FEW = 1 / 3  # the papers look closer where more than two thirds of the heads are gone


def draw_metric(comparison: Comparison, few: bool = False) -> Figure | str:
    """Mean over seeds with its spread, one line per method, and the unpruned model.

    Args:
        comparison: of which model, task and evaluation set.
        few: show only up to a third of the heads.
    """
    rows = comparison.counted
    own = comparison.own_count
    born = born_heads(comparison)
    if few:
        limit = FEW * born
        rows, own = rows[rows["k"] <= limit], own[own["heads"] <= limit]
        if rows["k"].nunique() == comparison.counted["k"].nunique() and len(own) == len(
            comparison.own_count
        ):
            return "all numbers of heads are few; the whole figure shows them"
    if rows["k"].nunique() < 2 and own.empty:
        return "fewer than two numbers of heads"
    figure = new_figure()
    axes = figure.subplots()
    scale = unit(comparison.metric)
    for method in comparison.methods:
        style: dict[str, Any] = look(method, comparison.order)
        of = rows[rows["method"] == method].groupby("k")["value"].agg(["mean", "std"])
        if not of.empty:
            axes.plot(of.index, scale * of["mean"], label=method, linewidth=1.5, **style)
            spread = scale * of["std"].fillna(0.0)
            middle = scale * of["mean"]
            axes.fill_between(
                of.index, middle - spread, middle + spread, color=style["color"], alpha=0.18,
                linewidth=0,
            )  # fmt: skip
        found = own[own["method"] == method]
        if not found.empty:
            style["linestyle"] = "none"
            axes.plot(
                found["heads"], scale * found["value"], label=f"{method}, own count",
                markerfacecolor="none", **style,
            )  # fmt: skip
    _unpruned_line(axes, comparison.unpruned, scale, born)
    head(figure, comparison.title + (", few heads" if few else ""))
    dress(axes, "", "kept heads", axis_label(comparison.metric))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    legend(figure, axes)
    return figure


def born_heads(comparison: Comparison) -> float:
    """How many heads the unpruned model has, or the most that any result has."""
    of = comparison.rows if comparison.unpruned.empty else comparison.unpruned
    return float(of["heads"].max())


def _unpruned_line(axes: Any, rows: pd.DataFrame, scale: float, born: float) -> None:
    if not rows.empty:
        axes.axhline(
            scale * rows["value"].mean(), color=GREY, linewidth=1.2, linestyle=(0, (6, 2)),
            label=f"unpruned, {born:.0f} heads",
        )  # fmt: skip
