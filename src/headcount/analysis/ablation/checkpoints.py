"""When do heads become important? Pruning along a training (Michel et al. 2019, Section 6)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from headcount.analysis.ablation.greedy import STEP, Point, curve_points, steps
from headcount.analysis.ablation.one import chosen_set
from headcount.analysis.ablation.subject import Subject
from headcount.analysis.ablation.task_subject import TaskSubject
from headcount.analysis.base import Analysis
from headcount.errors import HeadcountError
from headcount.plots.style import axis_label, unit
from headcount.pruners.choice import Scope
from headcount.runs.progress import Progress, Silent
from headcount.runs.settings import RunSettings

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Moment:
    """A model of the training.

    Attributes:
        name: of the checkpoint.
        points: the metric from no head closed to all.
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
        task: its name.
        split: the evaluation set.
        examples: in it.
        metric: that decides.
        greater_is_better: of the metric.
        moments: in the order of the training.
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
        """The metric in percent of the checkpoint's unpruned one; for a loss, the inverse ratio."""
        above, below = point.value, moment.whole
        if not self.greater_is_better:
            above, below = below, above
        return 100 * above / below if below else float("nan")

    def table(self) -> pd.DataFrame:
        import pandas as pd

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
        from headcount.analysis.figures.ablation_curves import draw_checkpoints, draw_training

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
        given: the models with their evaluation sets in order, or the settings of a run whose model
            is each of `folders` in turn.
        folders: model folders in order, see `find_checkpoints`.
        step: share of the heads that is closed between two points.
        split: the evaluation set; None for the first.
        sample: share of the training data that importance is scored on.
        progress: who wants to know.
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
    """Model folders in order: those given, or the checkpoints inside, by their numbers.

    Checkpoints that are given themselves are put in order too, since a shell's `checkpoint-*` has
    1000 before 500; models with other names stay as they were given.

    Args:
        folders: of models, or of trainings.
        pattern: of the checkpoints' names in the folder of a training.
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
