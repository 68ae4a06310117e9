"""What pruning gains: speed and size, against the number of heads and against the metric."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

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
from headcount.report.study_data import Comparison, StudyData
from headcount.study.entry import UNPRUNED

# By column: what stands above the panel and beside it.
_PANELS = {
    "speed": ("Examples per second", "speed-up, %"),
    "shrinkage": ("Number of parameters", "shrinkage, %"),
}


def draw_gain_by_heads(study: StudyData, comparison: Comparison) -> Figure | str:
    """Speed-up and shrinkage against kept heads, the mean of all methods.

    Both hardly depend on which heads are kept, so that all runs of a number of heads are one point.
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
    """Speed-up and shrinkage against the metric, one line per method, points joined by heads."""
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
        if not comparison.unpruned.empty:
            level = unit(comparison.metric) * comparison.unpruned["value"].mean()
            axes.axvline(level, color=GREY, linewidth=1.2, linestyle=(0, (6, 2)), label="unpruned")
    head(figure, f"{comparison.title}: gain by what it costs")
    legend(figure, axes)
    return figure


def gains(study: StudyData, comparison: Comparison) -> pd.DataFrame:
    """Speed-up and shrinkage of each run in percent; the speed is missing where not measured."""
    rows = []
    known = comparison.rows[(comparison.rows["run"] != "")]
    for row in known[known["method"] != UNPRUNED].itertuples():
        result = study.runs[str(row.run)].result
        speed = result.examples_per_second or result.generated_per_second
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
