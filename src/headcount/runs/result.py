"""What a run measured, as its `metrics.json` keeps it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from headcount.atomic import write_text
from headcount.errors import HeadcountError
from headcount.json_file import checked, entry, finite, read_json
from headcount.pruners.base import Pruner
from headcount.stats.numbers import shown
from headcount.tasks.base import Task
from headcount.training.teacher import Distillation

FILE = "metrics.json"
COMPENSATION, RECOVERY = "compensate", "recovery"  # stages that are done for each K alone
_FORMAT = "headcount run 1"
Scores = dict[str, dict[str, float]]  # by evaluation set and metric


@dataclass(frozen=True)
class Sides:
    """One figure for the unpruned model, `before`, and for the pruned one, `after`."""

    before: float
    after: float

    @property
    def ratio(self) -> float:
        """The figure of the pruned model divided by that of the unpruned one."""
        return self.after / self.before


@dataclass(frozen=True)
class RunResult:
    """The figures of one run.

    Attributes:
        method: the method that chose the heads.
        metric: the name of the metric that decides.
        greater_is_better: whether a higher value of that metric is better.
        scores: metrics of the pruned model, by evaluation set and name.
        before: metrics of the unpruned model; None if it was not evaluated.
        signatures: by evaluation set, a line that says how the score came about. Quote it with
            the score.
        heads: the number of heads.
        parameters: the number of parameters.
        bytes: the size of the weights.
        examples_per_second: evaluated examples, both models measured side by side; None if not
            measured.
        generated_per_second: generated sentences; None for tasks that do not generate.
        difference: the largest difference between outputs of the masked and of the cut model.
        seconds: the time that each stage took.
        harness: metrics of the pruned model on tasks of lm-evaluation-harness, by task and name.
        shared_by: how many results share one training. `seconds` has the whole of it, `cost` a
            fair part.
    """

    method: str
    metric: str
    greater_is_better: bool
    scores: Scores
    before: Scores | None
    signatures: dict[str, str]
    heads: Sides
    parameters: Sides
    bytes: Sides
    examples_per_second: Sides | None
    generated_per_second: Sides | None
    difference: float
    seconds: dict[str, float]
    shared_by: int = 1
    harness: Scores = field(default_factory=dict)

    @property
    def cost(self) -> float:
        """Seconds that this result took, with an equal part of a training that others share."""
        own = sum(self.seconds.get(stage, 0.0) for stage in (COMPENSATION, RECOVERY))
        return own + (sum(self.seconds.values()) - own) / self.shared_by

    def rows(self) -> list[tuple[str, str, str, str]]:
        """A table to show: what, before, after, ratio."""
        rows = []
        for split, scores in self.scores.items():
            before = None if self.before is None else self.before[split][self.metric]
            after = scores[self.metric]
            rows.append(
                (
                    f"{self.metric}, {split}",
                    "–" if before is None else shown(self.metric, before),
                    shown(self.metric, after),
                    f"× {after / before:.2f}" if before else "",
                )
            )
        for task, scores in self.harness.items():
            rows += [
                (f"{name}, {task}", "–", shown(name, value), "") for name, value in scores.items()
            ]
        kinds: Sequence[tuple[str, Sides | None, str, float]] = (
            ("heads", self.heads, "{:,.0f}", 1),
            ("parameters", self.parameters, "{:,.0f}", 1),
            ("weights on disk, MB", self.bytes, "{:.1f}", 1e6),
            ("examples per second", self.examples_per_second, "{:.1f}", 1),
            ("generated per second", self.generated_per_second, "{:.1f}", 1),
        )
        for what, sides, form, unit in kinds:
            if sides is not None:
                before_text, after_text = (
                    form.format(sides.before / unit),
                    form.format(sides.after / unit),
                )
                rows.append((what, before_text, after_text, f"× {sides.ratio:.2f}"))
        return rows

    def save(self, folder: Path) -> None:
        """Write `metrics.json`."""
        text = json.dumps({"format": _FORMAT, **asdict(self)}, indent=2) + "\n"
        write_text(folder / FILE, text)

    @classmethod
    def load(cls, folder: Path) -> RunResult:
        """Read `metrics.json` of a finished run."""
        try:
            data = checked(read_json(folder / FILE), dict, "its content")
            if entry(data, "format", str) != _FORMAT:
                raise ValueError("it has another format")
            return _read_result(data)
        except ValueError as error:
            raise HeadcountError(
                f"{folder} has no readable {FILE}: {error}; give the output of headcount prune"
            ) from error


def _read_result(data: dict[str, Any]) -> RunResult:
    """A result of its entries; a ValueError if one is missing or not what it should be."""
    result = RunResult(
        method=entry(data, "method", str),
        metric=entry(data, "metric", str),
        greater_is_better=entry(data, "greater_is_better", bool),
        scores=_scores(data, "scores"),
        before=None if _is_null(data, "before") else _scores(data, "before"),
        signatures={
            split: checked(line, str, f"the signature of {split}")
            for split, line in entry(data, "signatures", dict).items()
        },
        heads=_sides(data, "heads"),
        parameters=_sides(data, "parameters"),
        bytes=_sides(data, "bytes"),
        examples_per_second=_measured(data, "examples_per_second"),
        generated_per_second=_measured(data, "generated_per_second"),
        difference=entry(data, "difference", float),
        seconds=_seconds(entry(data, "seconds", dict)),
        shared_by=entry({"shared_by": 1, **data}, "shared_by", int),
        harness=_scores({"harness": {}, **data}, "harness"),
    )
    if result.shared_by < 1:
        raise ValueError(f"'shared_by' is {result.shared_by}, expected at least 1")
    for split, scores in result.scores.items():
        before = scores if result.before is None else result.before.get(split, {})
        if split not in result.signatures or result.metric not in scores.keys() & before.keys():
            raise ValueError(f"it has no signature or no {result.metric} of {split}")
    return result


def _is_null(data: dict[str, Any], name: str) -> bool:
    return name in data and data[name] is None


def _scores(data: dict[str, Any], name: str) -> Scores:
    parts = entry(data, name, dict)
    return {split: _metrics(entry(parts, split, dict)) for split in parts}


def _metrics(scores: dict[str, Any]) -> dict[str, float]:
    return {metric: entry(scores, metric, float) for metric in scores}


def _seconds(stages: dict[str, Any]) -> dict[str, float]:
    return {stage: finite(stages, stage) for stage in stages}


def _measured(data: dict[str, Any], name: str) -> Sides | None:
    return None if _is_null(data, name) else _sides(data, name)


def _sides(data: dict[str, Any], name: str) -> Sides:
    both = entry(data, name, dict)
    before, after = finite(both, "before"), finite(both, "after")
    if not (before > 0 and after >= 0):
        raise ValueError(f"{name!r} is {before:g} before and {after:g} after a cut")
    return Sides(both["before"], both["after"])  # a count stays a whole number


def accuracies(scores: dict[str, float]) -> dict[str, float]:
    """The metrics of a task of the harness that are accuracies; all of them if none is."""
    right = {
        name: value for name, value in scores.items() if name.startswith(("acc", "exact_match"))
    }
    return right or scores


def signature(
    pruner: Pruner,
    heads: tuple[int, int],
    task: Task,
    split: str,
    seed: int,
    examples: int,
    compensated: bool = False,
    distillation: Distillation | None = None,
    recovery: float | None = None,
) -> str:
    """The signature of one score: a line that says how it came about.

    Args:
        pruner: the pruner that chose the heads.
        heads: how many were kept, and how many there were.
        task: gives the data and the metric.
        split: the evaluation set.
        seed: the seed of the run.
        examples: how many examples the evaluation set has.
        compensated: whether output weights were fitted to make up for the cut heads.
        distillation: how the model learned from the unpruned one; None if it did not.
        recovery: epochs of training after the cut; None for none.
    """
    from headcount import __version__

    kept, born = heads
    parts = [f"method:{pruner.name}", f"keep:{kept}/{born}", *pruner.signature()]
    if distillation is not None:
        parts.append(f"distil:{distillation.weight:g}")
    if compensated:
        parts.append("compensated")
    if recovery is not None:
        parts.append(f"recovery:{recovery:g}")
    parts += [f"seed:{seed}", task.signature(split), f"n:{examples}", f"v:{__version__}"]
    return "|".join(parts)
