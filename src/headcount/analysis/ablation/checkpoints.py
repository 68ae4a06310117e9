"""When do heads become important? Pruning along a training (Michel et al. 2019, Section 6)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import ClassVar

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from headcount.analysis.ablation.greedy import (
    COLOURS,
    MARKERS,
    STEP,
    Point,
    curve_points,
    share_axis,
    steps,
)
from headcount.analysis.ablation.subject import Subject, chosen_set
from headcount.analysis.ablation.task_subject import TaskSubject
from headcount.analysis.base import Analysis
from headcount.errors import HeadcountError
from headcount.plots.style import axis_label, dress, legend, metric_name, new_figure, unit
from headcount.pruners.choice import Scope
from headcount.runs.progress import Progress, Silent
from headcount.runs.settings import RunSettings

_MOST_LINES = 7  # checkpoints; with more, a colour bar replaces the legend


@dataclass(frozen=True)
class Moment:
    """One checkpoint of the training.

    Attributes:
        name: name of the checkpoint.
        points: the metric, from no head closed to all.
    """

    name: str
    points: tuple[Point, ...]

    @property
    def whole(self) -> float:
        """The metric with all heads."""
        return self.points[0].value


@dataclass(frozen=True)
class AblateCheckpoints(Analysis):
    """Heads closed by importance in every checkpoint of a training.

    Attributes:
        task: name of the task.
        split: name of the evaluation set.
        examples: number of examples in it.
        metric: name of the metric.
        greater_is_better: whether a larger value of the metric is better.
        moments: the checkpoints, in the order of the training.
    """

    kind: ClassVar[str] = "ablate-checkpoints"

    task: str
    split: str
    examples: int
    metric: str
    greater_is_better: bool
    moments: tuple[Moment, ...]

    @property
    def title(self) -> str:
        return f"{self.task}, {self.split}: {self.metric} as heads are closed, along a training"

    @property
    def note(self) -> str:
        half = [(m.name, self.relative(m, _nearest(m, 0.5))) for m in (self._first, self._last)]
        return (
            f"Heads closed by masks in the order of each checkpoint's own gradient importance, the "
            f"least important first; {self.examples} examples. The metric is a percentage of that "
            "of the same checkpoint with all heads. With half of the heads closed "
            + " and ".join(f"{name} keeps {value:.0f} %" for name, value in half)
            + "."
        )

    @property
    def _first(self) -> Moment:
        return self.moments[0]

    @property
    def _last(self) -> Moment:
        return self.moments[-1]

    def relative(self, moment: Moment, point: Point) -> float:
        """The metric in percent of the same checkpoint with all heads; inverted for a loss."""
        above, below = point.value, moment.whole
        if not self.greater_is_better:
            above, below = below, above
        return 100 * above / below if below else float("nan")

    def table(self) -> pd.DataFrame:
        rows = [(moment, point) for moment in self.moments for point in moment.points]
        return pd.DataFrame(
            {
                "checkpoint": [moment.name for moment, _ in rows],
                "share closed": [point.share for _, point in rows],
                "closed": [point.heads for _, point in rows],
                axis_label(self.metric): [unit(self.metric) * point.value for _, point in rows],
                "% of unpruned": [self.relative(moment, point) for moment, point in rows],
            }
        )

    def figures(self) -> Mapping[str, Figure]:
        made = {"checkpoints": draw_checkpoints(self)}
        return made | ({"training": draw_training(self)} if len(self.moments) > 2 else {})


def ablate_checkpoints(
    given: Sequence[Subject] | RunSettings,
    folders: Sequence[Path] = (),
    step: float = STEP,
    split: str | None = None,
    sample: float = 1.0,
    progress: Progress | None = None,
) -> AblateCheckpoints:
    """Close heads by importance in each model of a training.

    Args:
        given: the models with their evaluation sets, in order; or the settings of a run, whose
            model is then each of `folders` in turn.
        folders: model folders in order, see `find_checkpoints`; only used with settings.
        step: share of the heads that is closed between two points; smaller gives a finer curve.
        split: name of the evaluation set; None takes the first.
        sample: share of the training data that importance is scored on; less is faster.
        progress: receives each stage and step, for a progress bar; None shows nothing.
    """
    shares = steps(step)
    number = len(folders) if isinstance(given, RunSettings) else len(given)
    if number < 2:
        raise HeadcountError(
            f"there {'is' if number == 1 else 'are'} {number} checkpoint"
            f"{'' if number == 1 else 's'}, expected at least two; give the folder of a training "
            "that saved several, or several model folders"
        )
    moments: list[Moment] = []
    examples, name = 0, ""
    subject: Subject | None = None
    for place in range(number):
        if isinstance(given, RunSettings):
            teller = Silent() if progress is None else progress
            teller.say(f"checkpoint {place + 1} of {number}: {folders[place].name}")
            subject = TaskSubject(replace(given, model=str(folders[place])), teller, sample)
        else:
            subject = given[place]
        name = chosen_set(subject, split)
        points, examples = curve_points(subject, name, subject.importance(), Scope(), shares)
        moments.append(Moment(subject.name, points))
    assert subject is not None
    return AblateCheckpoints(
        subject.task, name, examples, subject.metric, subject.greater_is_better, tuple(moments)
    )


def find_checkpoints(folders: Sequence[Path], pattern: str = "checkpoint-*") -> list[Path]:
    """Model folders in order: the given ones, or the checkpoints inside them by number.

    Given checkpoints are sorted too, because a shell lists `checkpoint-1000` before
    `checkpoint-500`. Models with other names stay in the given order.

    Args:
        folders: folders of models or of trainings.
        pattern: names of the checkpoints in a training's folder, with wildcards.
    """
    if all(fnmatch(folder.name, pattern) for folder in folders):
        folders = sorted(folders, key=_by_number)
    found: list[Path] = []
    for folder in folders:
        inside = [path for path in folder.glob(pattern) if (path / "config.json").is_file()]
        if inside:
            found += sorted(inside, key=_by_number)
        elif (folder / "config.json").is_file():
            found.append(folder)
        else:
            raise HeadcountError(
                f"{folder} is no model and has none inside that is named {pattern}; give model "
                "folders, or the folder of a training"
            )
    return found


def _by_number(path: Path) -> tuple[list[int], str]:
    return [int(number) for number in re.findall(r"\d+", path.name)], path.name


def _nearest(moment: Moment, share: float) -> Point:
    return min(moment.points, key=lambda point: abs(point.share - share))


def draw_checkpoints(found: AblateCheckpoints) -> Figure:
    """A line per checkpoint; later ones are darker (Fig. 5, right)."""
    figure = new_figure(5.2, 3.9)
    axes = figure.subplots()
    colours = mpl.colormaps["viridis_r"](np.linspace(0.1, 1, len(found.moments)))
    few = len(found.moments) <= _MOST_LINES
    for place, moment in enumerate(found.moments):
        axes.plot(
            [point.share for point in moment.points],
            [found.relative(moment, point) for point in moment.points],
            color=colours[place], marker=MARKERS[place % len(MARKERS)], markersize=4,
            label=f"{moment.name} [{unit(found.metric) * moment.whole:.1f}]",
        )  # fmt: skip
    title = f"{found.task}, {found.split}: the least important heads closed"
    dress(axes, title, "heads closed", f"% of unpruned {metric_name(found.metric)}")
    share_axis(axes)
    if few:
        legend(figure, axes)
    else:
        shades = mpl.cm.ScalarMappable(mpl.colors.Normalize(1, len(found.moments)), "viridis_r")
        figure.colorbar(shades, ax=axes, label="checkpoint", fraction=0.05)
    return figure


def draw_training(found: AblateCheckpoints) -> Figure:
    """A line per share of closed heads, along the training (Fig. 5, left)."""
    shares = [point.share for point in found.moments[0].points]
    chosen = [place for place, share in enumerate(shares) if round(10 * share) in (2, 4, 6, 8)]
    figure = new_figure(5.2, 3.7)
    axes = figure.subplots()
    for look, place in enumerate(chosen):
        axes.plot(
            range(len(found.moments)),
            [found.relative(moment, moment.points[place]) for moment in found.moments],
            color=COLOURS[look % len(COLOURS)], marker=MARKERS[look % len(MARKERS)],
            markersize=5, label=f"{shares[place]:.0%} closed",
        )  # fmt: skip
    title = f"{found.task}, {found.split}: heads closed, along a training"
    dress(axes, title, "checkpoint", f"% of unpruned {metric_name(found.metric)}")
    names = [f"{m.name.removeprefix('checkpoint-')}" for m in found.moments]
    axes.set_xticks(range(len(names)), names, rotation=40 if len(names) > 6 else 0)
    legend(figure, axes)
    return figure
