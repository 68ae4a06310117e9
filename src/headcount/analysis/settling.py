"""When a run's choice of heads settles, and the report's figure of it.

`settled` and `settles_at` read this from the selection history of a run. `draw_dynamics` draws it
for a whole study, beside the temperature and the metric at each step: Figures 7 and 8 of the paper
on differentiable subset pruning, for every method that learns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, LogLocator, MaxNLocator, NullLocator

from headcount.plots.style import (
    GREY,
    axis_label,
    dress,
    head,
    legend_below,
    new_figure,
    unit,
)
from headcount.pruners.methods import METHODS, find_pruner
from headcount.stats.resampling import Array
from headcount.study.read import Comparison, StudyData
from headcount.study.run_record import Run

# What a group of runs has in common: the number of heads asked for, or the price λ of a head.
_Key = tuple[str, float]
_BESIDE = 4  # panels in a row; more would be too narrow
_STRIP, _MARK = 36.0, 6.0  # room above 100 %: at most for all marks, and for each mark


class Course(NamedTuple):
    """A value over the steps of a training."""

    steps: Array
    values: Array


def settled(run: Run) -> Course | None:
    """How close the selection is to the final one, at each step of the history.

    The value is the number of heads that both selections have, divided by the size of the larger
    one. With K heads at all times, it is the share of the final heads that are selected already.
    While many more heads are selected, it is small.

    Returns:
        None if there was no choice that could settle: the run has no history, it kept no head, or
        its heads were given.
    """
    if run.history is None or not len(run.history) or not _learned(run):
        return None
    selections = run.history.selections
    final = set(run.mask.kept) if run.mask is not None else set(selections[-1].heads)
    if not final:
        return None
    shares = [len(final & set(s.heads)) / max(len(final), len(s.heads)) for s in selections]
    return Course(np.array([float(s.step) for s in selections]), np.array(shares))


def _learned(run: Run) -> bool:
    """Whether a run chose its heads while it trained; a method that is not known here may have."""
    method = run.result.method
    return method not in METHODS or find_pruner(method).learns_choice


def settles_at(run: Run) -> int | None:
    """The first step of the history after which the selection never changes.

    Returns:
        The last step if the choice moved until the end; None for a run without a history.
    """
    if run.history is None or not len(run.history):
        return None
    step, final, _ = run.history.selections[-1]
    for selection in reversed(run.history.selections):
        if set(selection.heads) != set(final):
            break
        step = selection.step
    return step


def mean_course(courses: list[Course]) -> Course:
    """The mean at every step that any run logged; a value holds until the next one."""
    # Before its first entry a run counts with its first value, after its last with the last.
    steps = np.unique(np.concatenate([course.steps for course in courses]))
    held = [
        values[np.clip(np.searchsorted(of, steps, side="right") - 1, 0, None)]
        for of, values in courses
    ]
    return Course(steps, np.mean(held, axis=0))


def draw_dynamics(study: StudyData, comparison: Comparison) -> Figure | str:
    """Draw one column of panels per method, and one colour per number of heads.

    The main panel is the share of the final heads that are selected. Above it is the temperature,
    below it the metric of the model with the selected heads only. Both are drawn if runs have them.

    Returns:
        The figure, or the reason why there is none.
    """
    runs = {
        method: {key: of for key, of in _groups(study, comparison, method).items() if of}
        for method in comparison.methods
    }
    runs = {method: groups for method, groups in runs.items() if groups}
    if not runs:
        return "no run has a selection history"
    colours = _colours([key for groups in runs.values() for key in groups])
    everyone = [run for groups in runs.values() for of in groups.values() for run in of]
    parts = ["share"]
    if any(_temperatures(run) is not None for run in everyone):
        parts.insert(0, "temperature")
    if any(_metrics(run) is not None for run in everyone):
        parts.append("metric")
    figure, panels = _grid(len(runs), parts)
    for column, (method, groups) in zip(panels, runs.items(), strict=True):
        last = max(_last_step(run) for of in groups.values() for run in of)
        for part, axes in zip(parts, column, strict=True):
            if part == "temperature":
                _draw_temperature(axes, [run for of in groups.values() for run in of])
            elif part == "share":
                _draw_share(axes, groups, colours, max(map(len, runs.values())))
            else:
                _draw_metric(axes, groups, colours, unit(comparison.metric))
            axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
            axes.set_xlim(-0.02 * last, 1.03 * last)
        column[0].set_title(method, loc="left", fontsize=10)
        column[-1].set_xlabel("training step", fontsize=10)
    _label(panels, parts, axis_label(comparison.metric), next(iter(everyone[0].result.scores)))
    title = f"{comparison.model}, {comparison.task}: how the choice settles"
    head(figure, f"{title} (thin: runs; thick: mean)")
    marks = [Line2D([], [], color=colour, linewidth=2.0) for colour in colours.values()]
    marks.append(Line2D([], [], color=GREY, marker="v", linestyle="none"))
    legend_below(figure, marks, [*map(_said, colours), "settled (mean)"])
    return figure


def _groups(study: StudyData, comparison: Comparison, method: str) -> dict[_Key, list[Run]]:
    rows = comparison.rows[(comparison.rows["method"] == method) & (comparison.rows["run"] != "")]
    groups: dict[_Key, list[Run]] = {}
    for row in rows.itertuples():
        run = study.runs[str(row.run)]
        if settled(run) is not None:
            groups.setdefault(_key(row), []).append(run)
    return groups


def _key(row: Any) -> _Key:
    if not pd.isna(row.k):
        return "heads", float(row.k)
    return "λ", math.nan if pd.isna(row.penalty) else float(row.penalty)


def _colours(keys: Sequence[_Key]) -> dict[_Key, Any]:
    """Darker for fewer heads, and for higher prices, which leave fewer heads."""
    of_heads = sorted({key for key in keys if key[0] == "heads"}, key=lambda key: key[1])
    of_prices = sorted({key for key in keys if key[0] == "λ"}, key=lambda key: -key[1])
    colours: dict[_Key, Any] = {}
    for group, name, end in ((of_heads, "viridis", 0.85), (of_prices, "plasma", 0.8)):
        shades = mpl.colormaps[name](np.linspace(0.0, end, max(len(group), 2)))
        colours.update(zip(group, shades, strict=False))
    return colours


def _temperatures(run: Run) -> Course | None:
    rows = [s for s in (run.history.selections if run.history else ()) if s.temperature is not None]
    if not rows:
        return None
    return Course(
        np.array([float(s.step) for s in rows]), np.array([float(s.temperature or 0) for s in rows])
    )


def _metrics(run: Run) -> Course | None:
    if run.history is None or not run.history.metrics:
        return None
    steps, values = zip(*run.history.metrics, strict=True)
    return Course(np.array(steps, dtype=float), np.array(values, dtype=float))


def _grid(methods: int, parts: Sequence[str]) -> tuple[Figure, list[list[Axes]]]:
    """A figure with a column of panels for each method, in bands of `_BESIDE` columns."""
    across = min(methods, _BESIDE)
    bands = math.ceil(methods / across)
    heights = {"temperature": 0.8, "share": 2.0, "metric": 2.0}
    tall = sum(heights[part] for part in parts)
    figure = new_figure(max(5.2, 2.5 * across + 0.7), bands * (tall + 0.7) + 0.8)
    grid = figure.subplots(
        bands * len(parts), across, sharey="row", squeeze=False,
        height_ratios=[heights[part] for part in parts] * bands,
    )  # fmt: skip
    columns = [
        [grid[band * len(parts) + row, place] for row in range(len(parts))]
        for band in range(bands)
        for place in range(across)
    ]
    for spare in columns[methods:]:
        for axes in spare:
            axes.set_visible(False)
    return figure, columns[:methods]


def _last_step(run: Run) -> float:
    course = settled(run)
    return 1.0 if course is None else max(1.0, float(course.steps[-1]))


def _draw_temperature(axes: Axes, runs: list[Run]) -> None:
    dress(axes, "", "", "")
    courses = [course for course in map(_temperatures, runs) if course is not None]
    for course in courses:
        axes.plot(course.steps, course.values, color=GREY, linewidth=1.0)
    if not courses:
        axes.text(0.5, 0.5, "no temperature", transform=axes.transAxes, ha="center", va="center",
                  fontsize=9, color=GREY)  # fmt: skip
        axes.grid(visible=False)
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(numticks=4))
    axes.yaxis.set_minor_locator(NullLocator())


def _draw_share(
    axes: Axes, groups: dict[_Key, list[Run]], colours: dict[_Key, Any], most: int
) -> None:
    dress(axes, "", "", "")
    mark = min(_MARK, _STRIP / most)  # each has its own height, so that none hides another
    for place, key in enumerate((key for key in colours if key in groups), start=1):
        runs = groups[key]
        courses = [course for course in map(settled, runs) if course is not None]
        style: dict[str, Any] = {"color": colours[key], "where": "post"}
        for course in courses:
            axes.step(course.steps, 100 * course.values, alpha=0.4, linewidth=0.7, **style)
        mean = mean_course(courses)
        axes.step(mean.steps, 100 * mean.values, linewidth=2.0, **style)
        ends = [step for step in map(settles_at, runs) if step is not None]
        height = 100 + mark * place
        axes.plot(np.mean(ends), height, "v", color=colours[key], markersize=5.5, clip_on=False)
    axes.set_ylim(0, 103 + mark * most)
    axes.yaxis.set_major_locator(FixedLocator([0, 25, 50, 75, 100]))


def _draw_metric(
    axes: Axes, groups: dict[_Key, list[Run]], colours: dict[_Key, Any], scale: float
) -> None:
    dress(axes, "", "", "")
    for key, runs in groups.items():
        courses = [course for course in map(_metrics, runs) if course is not None]
        if not courses:
            continue
        for course in courses:
            axes.plot(
                course.steps, scale * course.values, color=colours[key], alpha=0.4, linewidth=0.7
            )
        steps = np.unique(np.concatenate([course.steps for course in courses]))
        values = np.mean([np.interp(steps, *course) for course in courses], axis=0)
        axes.plot(steps, scale * values, color=colours[key], linewidth=2.0)


def _label(panels: list[list[Axes]], parts: Sequence[str], metric: str, split: str) -> None:
    """Name the rows, at the left end of each band."""
    said = {"temperature": "τ", "share": "final heads\nselected, %", "metric": f"{metric}\n{split}"}
    for place, column in enumerate(panels):
        for part, axes in zip(parts, column, strict=True):
            if place % _BESIDE == 0:
                axes.set_ylabel(said[part], fontsize=10)
            if axes is not column[-1]:
                axes.tick_params(labelbottom=False)


def _said(key: _Key) -> str:
    what, value = key
    if what == "heads":
        return "1 head" if value == 1 else f"{value:.0f} heads"
    return "own count" if math.isnan(value) else f"λ = {value:g}"
