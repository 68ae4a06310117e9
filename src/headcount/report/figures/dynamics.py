"""When a method settles: how much of the final choice is selected at each step of the training."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from headcount.report.figures.style import dress, look, new_figure
from headcount.report.study_data import Comparison, Run, StudyData

Array = np.ndarray[Any, Any]


def settled(run: Run) -> tuple[Array, Array] | None:
    """Steps, and the share of the finally selected heads that are selected then.

    Returns:
        None for a run without a history, or one that kept no head.
    """
    if run.history is None or not len(run.history):
        return None
    selections = run.history.selections
    final = set(run.mask.kept) if run.mask is not None else set(selections[-1][1])
    if not final:
        return None
    steps = np.array([step for step, _ in selections], dtype=float)
    shares = np.array([len(final & set(heads)) / len(final) for _, heads in selections])
    return steps, shares


def draw_dynamics(study: StudyData, comparison: Comparison) -> Figure | str:
    """One panel per method: every run as a thin line, their mean as a thick one."""
    curves: dict[str, list[tuple[Array, Array]]] = {}
    for method in comparison.methods:
        names = comparison.rows[comparison.rows["method"] == method]["run"]
        found = [settled(study.runs[name]) for name in names if name]
        if any(found):
            curves[method] = [curve for curve in found if curve is not None]
    if not curves:
        return "no run has a selection history"
    figure = new_figure(max(4.6, 2.9 * len(curves)), 3.2)
    panels = figure.subplots(1, len(curves), sharey=True, squeeze=False)[0]
    for axes, (method, of_method) in zip(panels, curves.items(), strict=True):
        style: dict[str, Any] = look(method, comparison.order)
        for steps, shares in of_method:
            axes.step(
                steps, 100 * shares, where="post", color=style["color"], alpha=0.35, linewidth=0.8
            )
        steps, mean = mean_course(of_method)
        axes.step(steps, 100 * mean, where="post", color=style["color"], linewidth=2.2)
        many = "run" if len(of_method) == 1 else "runs"
        dress(axes, f"{method}, {len(of_method)} {many}", "training step", "")
        axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
        axes.set_ylim(0, 104)
    panels[0].set_ylabel("final heads selected, %", fontsize=10)
    figure.suptitle(
        f"{comparison.model}, {comparison.task}: thin lines are runs, thick their mean",
        x=0.01, ha="left", fontsize=10,
    )  # fmt: skip
    return figure


def mean_course(curves: list[tuple[Array, Array]]) -> tuple[Array, Array]:
    """The mean at every step that a run has logged; a selection holds until the next one."""
    # Before its first entry and after its last one, a run says nothing new: its ends hold.
    steps = np.unique(np.concatenate([steps for steps, _ in curves]))
    held = [
        shares[np.clip(np.searchsorted(of, steps, side="right") - 1, 0, None)]
        for of, shares in curves
    ]
    return steps, np.mean(held, axis=0)
