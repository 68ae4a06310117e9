"""When does the choice of heads settle? From the selection histories of a study's runs.

`dynamics` reads them, `draw_settling` draws when each run settled. What "settled" means, and the
figure of the whole courses, is in `settling.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from headcount.analysis.base import Analysis
from headcount.analysis.settling import settled, settles_at
from headcount.errors import HeadcountError
from headcount.plots.style import dress, legend, new_figure
from headcount.study.read import read_study
from headcount.study.run_record import Run

_MARKERS = ("o", "s", "^", "D", "v", "P", "X")


@dataclass(frozen=True)
class Moment:
    """One entry of a run's history.

    Attributes:
        step: optimizer steps done so far.
        share: how close the selection is to the final one; see `settling.settled`.
        temperature: temperature of the gates; None for methods without one.
        value: the metric of the model with the selected heads only; None if not evaluated.
    """

    step: int
    share: float
    temperature: float | None
    value: float | None


@dataclass(frozen=True)
class RunCourse:
    """The history of one run.

    Attributes:
        method: name of the method, or the study's name for a variant of it.
        keep: number of heads kept at the end.
        seed: the run's seed.
        settles_at: the first step after which the selection never changes.
        moments: the entries of the history, in order.
    """

    method: str
    keep: int
    seed: int
    settles_at: int
    moments: tuple[Moment, ...]

    @property
    def last(self) -> int:
        """The length of the training, in steps."""
        return self.moments[-1].step

    @property
    def temperature(self) -> float | None:
        """The temperature when the choice settles."""
        return next(m.temperature for m in reversed(self.moments) if m.step <= self.settles_at)


@dataclass(frozen=True)
class Dynamics(Analysis):
    """When the choice settled, for all runs of a study that learn which heads to keep.

    Attributes:
        model: name of the model.
        task: name of the task.
        metric: name of the metric.
        courses: one per run.
    """

    kind: ClassVar[str] = "dynamics"

    model: str
    task: str
    metric: str
    courses: tuple[RunCourse, ...]

    @property
    def title(self) -> str:
        return f"When the choice settles, {self.model}, {self.task}"

    @property
    def note(self) -> str:
        early = sum(course.settles_at <= course.last / 2 for course in self.courses)
        return (
            "The step after which the selected heads stay the same, from the history of each run "
            f"(as often as it was logged). Of {len(self.courses)} runs {early} had settled at half "
            "of their training. The figures of the report show the whole courses."
        )

    def table(self) -> pd.DataFrame:
        return pd.DataFrame(
            {
                "method": [c.method for c in self.courses],
                "heads": [c.keep for c in self.courses],
                "seed": [c.seed for c in self.courses],
                "steps": [c.last for c in self.courses],
                "settles at": [c.settles_at for c in self.courses],
                "share of the training": [c.settles_at / max(c.last, 1) for c in self.courses],
                "temperature then": [c.temperature for c in self.courses],
                "final heads selected at half, %": [100 * _at_half(c) for c in self.courses],
            }
        )

    def figures(self) -> Mapping[str, Figure]:
        return {"settling": draw_settling(self)}


def dynamics(study: str | Path) -> Dynamics:
    """Read when the choice of every run settled.

    Args:
        study: folder of the study, as `headcount compare` writes it.

    Raises:
        HeadcountError: no run has a history of its choice.
    """
    data = read_study(study)
    courses = [course for run in data.runs.values() if (course := _course(run)) is not None]
    if not courses:
        raise HeadcountError(
            f"no run of {study} has a selection history of heads that it chose; run a method that "
            "learns, such as joint-dsp"
        )
    courses.sort(key=lambda c: (c.method, -c.keep, c.seed))
    first = data.results.iloc[0]
    return Dynamics(str(first["model"]), str(first["task"]), str(first["metric"]), tuple(courses))


def _course(run: Run) -> RunCourse | None:
    shares, end = settled(run), settles_at(run)
    if run.history is None or shares is None or end is None:
        return None
    values = dict(run.history.metrics)
    moments = tuple(
        Moment(s.step, float(share), s.temperature, values.get(s.step))
        for s, share in zip(run.history.selections, shares.values, strict=True)
    )
    kept = int(run.result.heads.after)
    return RunCourse(run.method, kept, int(run.settings.get("seed", 0)), end, moments)


def _at_half(course: RunCourse) -> float:
    return next(m.share for m in reversed(course.moments) if m.step <= course.last / 2)


def draw_settling(found: Dynamics) -> Figure:
    """One mark per run: further left means an earlier choice; shades and marks show K."""
    methods = list(dict.fromkeys(course.method for course in found.courses))
    counts = sorted({course.keep for course in found.courses})
    shades = mpl.colormaps["viridis"](np.linspace(0.0, 0.85, max(len(counts), 2)))
    figure = new_figure(5.2, 0.5 * len(methods) + 1.9)
    axes = figure.subplots()
    for place, keep in enumerate(counts):
        runs = [course for course in found.courses if course.keep == keep]
        style: dict[str, Any] = {"color": shades[place], "marker": _MARKERS[place % len(_MARKERS)]}
        # Each K is a little lower than the one before, so that no mark hides another.
        shift = 0.5 * (place - (len(counts) - 1) / 2) / max(len(counts), 2)
        axes.plot(
            [course.settles_at / max(course.last, 1) for course in runs],
            [methods.index(course.method) + shift for course in runs],
            linestyle="none", markersize=5.5, alpha=0.85,
            label="1 head" if keep == 1 else f"{keep} heads", **style,
        )  # fmt: skip
    dress(axes, found.title, "share of the training after which nothing changes", "")
    axes.set_yticks(range(len(methods)), methods)
    axes.set_ylim(len(methods) - 0.4, -0.6)
    axes.set_xlim(-0.02, 1.03)
    axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    legend(figure, axes)
    return figure
