"""How many heads hard-concrete gates keep for a price λ per head."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from headcount.report.figures.style import dress, head, legend, look, new_figure
from headcount.report.study_data import Comparison


def draw_penalty(comparison: Comparison) -> Figure | str:
    """Kept heads against λ: the mean as a line, every run as a point."""
    rows = comparison.own_count
    rows = rows[rows["penalty"].notna()]
    if rows.empty:
        return "no run with a price λ per head"
    figure = new_figure()
    axes = figure.subplots()
    for method, of in rows.groupby("pruner"):  # variants are points of one line
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
