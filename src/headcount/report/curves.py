"""Curves over the number of kept heads: the metric, the price λ, speed and size.

Every `draw_` function returns a figure, or the reason why there is none.
"""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from headcount.plots.style import (
    GREY,
    axis_label,
    dress,
    head,
    legend,
    look,
    new_figure,
    stretch,
    unit,
)
from headcount.pruners.methods import UNPRUNED
from headcount.stats.numbers import less_is_better
from headcount.study.read import Comparison, StudyData

WIDE = 5  # an axis of equal steps would press smaller values of a perplexity into one line
FEW = 1 / 3  # the papers look closer where more than two thirds of the heads are gone
_PANELS = {  # by column of `gains`: title of the panel and label of its axis
    "speed": ("Examples per second", "speed-up, %"),
    "shrinkage": ("Number of parameters", "shrinkage, %"),
}


def draw_metric(comparison: Comparison, few: bool = False) -> Figure | str:
    """Mean over seeds with its spread, one line per method, and the unpruned model.

    Args:
        comparison: the results of one model, task and evaluation set.
        few: show only up to a third of the heads.
    """
    rows, own = comparison.counted, comparison.own_count
    born = born_heads(comparison)
    if few:
        rows, own = rows[rows["k"] <= FEW * born], own[own["heads"] <= FEW * born]
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
        _draw_counted(axes, rows[rows["method"] == method], method, scale, style)
        _draw_own_count(axes, own[own["method"] == method], method, scale, style)
    _draw_unpruned(axes, comparison.unpruned, scale, born)
    head(figure, comparison.title + (", few heads" if few else ""))
    dress(axes, "", "kept heads", axis_label(comparison.metric))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if is_wide(comparison):
        stretch(axes, "y")
    legend(figure, axes)
    return figure


def is_wide(comparison: Comparison) -> bool:
    """Whether a metric without an upper limit has values so far apart that an axis needs powers."""
    values = comparison.rows["value"]
    if not less_is_better(comparison.metric) or values.empty:
        return False
    return bool(values.min() > 0 and values.max() > WIDE * values.min())


def born_heads(comparison: Comparison) -> float:
    """The number of heads of the unpruned model; without one, the largest number of any result."""
    of = comparison.rows if comparison.unpruned.empty else comparison.unpruned
    return float(of["heads"].max())


def _draw_counted(
    axes: Axes, rows: pd.DataFrame, method: str, scale: float, style: dict[str, Any]
) -> None:
    of = rows.groupby("k")["value"].agg(["mean", "std"])
    if not of.empty:
        axes.plot(of.index, scale * of["mean"], label=method, linewidth=1.5, **style)
        spread = scale * of["std"].fillna(0.0)
        middle = scale * of["mean"]
        axes.fill_between(
            of.index, middle - spread, middle + spread, color=style["color"], alpha=0.18,
            linewidth=0,
        )  # fmt: skip


def _draw_own_count(
    axes: Axes, rows: pd.DataFrame, method: str, scale: float, style: dict[str, Any]
) -> None:
    if not rows.empty:
        axes.plot(
            rows["heads"], scale * rows["value"], label=f"{method}, own count",
            markerfacecolor="none", **{**style, "linestyle": "none"},
        )  # fmt: skip


def _draw_unpruned(axes: Axes, rows: pd.DataFrame, scale: float, born: float) -> None:
    if not rows.empty:
        axes.axhline(
            scale * rows["value"].mean(), color=GREY, linewidth=1.2, linestyle=(0, (6, 2)),
            label=f"unpruned, {born:.0f} heads",
        )  # fmt: skip


def draw_penalty(comparison: Comparison) -> Figure | str:
    """Kept heads against λ: the mean as a line, every run as a point."""
    rows = comparison.own_count
    rows = rows[rows["penalty"].notna()]
    if rows.empty:
        return "no run with a price λ per head"
    figure = new_figure()
    axes = figure.subplots()
    for method, of in rows.groupby("pruner"):  # variants of a method are points of one line
        style: dict[str, Any] = look(str(method))
        means = of.groupby("penalty")["heads"].mean()
        axes.plot(means.index, means, label=f"{method}, mean", **{**style, "marker": None})
        axes.plot(
            of["penalty"], of["heads"], label="each run", alpha=0.6,
            **{**style, "linestyle": "none"},
        )  # fmt: skip
    head(figure, f"{comparison.model}, {comparison.task}: heads left by a price")
    dress(axes, "", "price λ per head", "kept heads")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    if (rows["penalty"] > 0).all() and rows["penalty"].nunique() > 1:
        axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    legend(figure, axes)
    return figure


def draw_gain_by_heads(study: StudyData, comparison: Comparison) -> Figure | str:
    """Speed-up and shrinkage against kept heads, averaged over all methods.

    Both hardly depend on which heads are kept. So all runs with the same number of heads are one
    point.
    """
    found = gains(study, comparison)
    if found.empty:
        return "no readable run says how fast and how large its model is"
    figure, panels = _panels(found, 3.4)
    for column, axes in panels.items():
        above, beside = _PANELS[column]
        of = found.dropna(subset=[column])
        means = of.groupby("heads")[column].agg(["mean", "std"])
        dress(axes, above, "kept heads", beside)
        colour = look("joint-dsp")["color"]
        axes.errorbar(
            means.index, means["mean"], yerr=means["std"].fillna(0.0), linewidth=1.5, capsize=3,
            color=colour, label="mean ± standard deviation",
        )  # fmt: skip
        axes.plot(of["heads"], of[column], "o", color=GREY, markersize=2.5, label="each run")
    head(figure, f"{comparison.model}, {comparison.task}: gain by heads")
    legend(figure, axes)
    return figure


def draw_gain_by_metric(study: StudyData, comparison: Comparison) -> Figure | str:
    """Speed-up and shrinkage against the metric, one line per method, one point per count."""
    found = gains(study, comparison)
    if found.empty:
        return "no readable run says how fast and how large its model is"
    figure, panels = _panels(found, 3.6)
    for column, axes in panels.items():
        above, beside = _PANELS[column]
        of = found.dropna(subset=[column])
        dress(axes, above, axis_label(comparison.metric), beside)
        for method in comparison.methods:
            points = of[of["method"] == method].groupby("heads")[["value", column]].mean()
            if not points.empty:
                style: dict[str, Any] = look(method, comparison.order)
                axes.plot(points["value"], points[column], label=method, linewidth=1.2, **style)
        if is_wide(comparison):
            stretch(axes, "x")
        if not comparison.unpruned.empty:
            level = unit(comparison.metric) * comparison.unpruned["value"].mean()
            axes.axvline(level, color=GREY, linewidth=1.2, linestyle=(0, (6, 2)), label="unpruned")
    head(figure, f"{comparison.title}: gain by what it costs")
    legend(figure, axes)
    return figure


def gains(study: StudyData, comparison: Comparison) -> pd.DataFrame:
    """Speed-up and shrinkage of each run in percent; an unmeasured speed is missing."""
    rows = []
    known = comparison.rows[(comparison.rows["run"] != "")]
    for row in known[known["method"] != UNPRUNED].itertuples():
        result = study.runs[str(row.run)].result
        speed = result.speed
        rows.append(
            {
                "method": row.method,
                "heads": row.heads,
                "value": unit(comparison.metric) * float(str(row.value)),
                "speed": None if speed is None else 100 * (speed.ratio - 1),
                "shrinkage": 100 * (1 - result.parameters.ratio),
            }
        )
    columns = ["method", "heads", "value", "speed", "shrinkage"]
    frame = pd.DataFrame(rows, columns=columns)
    numbers = columns[1:]
    frame[numbers] = frame[numbers].astype(float)
    return frame


def _panels(found: pd.DataFrame, height: float) -> tuple[Figure, dict[str, Axes]]:
    """A figure with a panel for each gain that was measured; the size always is."""
    measured = [column for column in _PANELS if found[column].notna().any()]
    figure = new_figure(4.2 * len(measured), height)
    drawn = figure.subplots(1, len(measured), squeeze=False)[0]
    return figure, dict(zip(measured, drawn, strict=True))
