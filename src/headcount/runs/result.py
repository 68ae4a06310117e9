"""What a run measured, as its `metrics.json` keeps it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from headcount.atomic import write_text
from headcount.errors import HeadcountError
from headcount.json_file import checked, entry, finite, read_json
from headcount.stats.numbers import shown

FILE = "metrics.json"
COMPENSATION, RECOVERY = "compensate", "recovery"  # stages that are done for each K alone
# Of the evaluation set, where the fewest heads within a loss are looked for.
HALVES = ("half to choose on", "half to report on")
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
class Reached:
    """What was asked for instead of a number of heads, and what the pruned model has.

    Attributes:
        name: `cache`, `parameters` or `speed_up`.
        asked: a share of the unpruned model's, or times as fast.
        got: the same of the pruned model, counted after the cut.
        met: whether that is as little, or as fast, as was asked for.
        counted: bytes of the cache, parameters, or operations of a forward pass.
    """

    name: str
    asked: float
    got: float
    met: bool
    counted: Sides

    def row(self) -> tuple[str, str, str, str]:
        """A row of the table."""
        said = f"asked: {self.name.replace('_', '-')} {self.asked:g} · got {self.got:.2f}"
        said += "" if self.met else ", missed"
        before, after = (f"{count:,.0f}" for count in (self.counted.before, self.counted.after))
        return said, before, after, f"× {self.counted.ratio:.2f}"


@dataclass(frozen=True)
class FewestWithin:
    """The fewest heads that cost no more of the metric than was asked for.

    Attributes:
        asked: the part of the metric that may be lost.
        heads: K that was found.
        chosen_on: the metric on the half of the evaluation set that K was chosen on.
        reported_on: the metric on the other half.
        tried: each K that was tried, with its metric on the first of these halves, fewest first.
    """

    asked: float
    heads: int
    chosen_on: Sides
    reported_on: Sides
    tried: tuple[tuple[int, float], ...]

    def doubts(self, greater_is_better: bool) -> tuple[int, int] | None:
        """Two K next to each other among those tried of which the smaller did better; or None.

        The bisection assumes that more heads are never worse.
        """
        sign = 1.0 if greater_is_better else -1.0
        for (fewer, low), (more, high) in pairwise(self.tried):
            if sign * low > sign * high:
                return fewer, more
        return None


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
        reached: the cache, parameters or speed-up that were asked for, and what there is; None for
            a run with a keep.
        fewest_within: the search for the fewest heads within a loss; None for other runs.
        tokens_per_second: tokens that a language model reads; None for other models.
        cache_per_token: bytes of keys and values that a language model keeps of each token; None
            for other models.
        also: metrics besides the one that decides that a table shows.
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
    reached: Reached | None = None
    fewest_within: FewestWithin | None = None
    tokens_per_second: Sides | None = None
    cache_per_token: Sides | None = None
    also: tuple[str, ...] = ()

    @property
    def speed(self) -> Sides | None:
        """Examples per second, else generated sentences; None if neither was measured."""
        return self.examples_per_second or self.generated_per_second

    @property
    def cost(self) -> float:
        """Seconds that this result took, with an equal part of a training that others share."""
        own = sum(self.seconds.get(stage, 0.0) for stage in (COMPENSATION, RECOVERY))
        return own + (sum(self.seconds.values()) - own) / self.shared_by

    def rows(self) -> list[tuple[str, str, str, str]]:
        """A table to show: what, before, after, ratio."""
        rows = []
        for split, scores in self.scores.items():
            for metric in dict.fromkeys((self.metric, *self.also)):
                if metric in scores:
                    rows.append(self._score_row(split, metric))
        for task, scores in self.harness.items():
            rows += [
                (f"{name}, {task}", "–", shown(name, value), "") for name, value in scores.items()
            ]
        kinds: Sequence[tuple[str, Sides | None, str, float]] = (
            ("heads", self.heads, "{:,.0f}", 1),
            ("parameters", self.parameters, "{:,.0f}", 1),
            ("weights on disk, MB", self.bytes, "{:.1f}", 1e6),
            ("key-value cache, bytes per token", self.cache_per_token, "{:,.0f}", 1),
            self._speed(),
            ("generated per second", self.generated_per_second, "{:.1f}", 1),
        )
        for what, sides, form, unit in kinds:
            if sides is not None:
                before_text, after_text = (
                    form.format(sides.before / unit),
                    form.format(sides.after / unit),
                )
                rows.append((what, before_text, after_text, f"× {sides.ratio:.2f}"))
        if self.reached is not None:
            rows.append(self.reached.row())
        return [*rows, *self._search_rows()]

    def _score_row(self, split: str, metric: str) -> tuple[str, str, str, str]:
        after = self.scores[split][metric]
        before = None if self.before is None else self.before[split].get(metric)
        return (
            f"{metric.replace('_', ' ')}, {split}",
            "–" if before is None else shown(metric, before),
            shown(metric, after),
            f"× {after / before:.2f}" if before else "",
        )

    def _speed(self) -> tuple[str, Sides | None, str, float]:
        """Tokens of a language model, whose examples are long, and examples of other models."""
        if self.tokens_per_second is not None:
            return "tokens per second", self.tokens_per_second, "{:,.0f}", 1
        return "examples per second", self.examples_per_second, "{:.1f}", 1

    def _search_rows(self) -> list[tuple[str, str, str, str]]:
        """What the search for the fewest heads within a loss found."""
        found = self.fewest_within
        if found is None:
            return []
        asked = f"asked: within {100 * found.asked:g} % · found {found.heads} heads"
        rows = [(f"{asked}, {len(found.tried)} tried", "", "", "")]
        for half, sides in zip(HALVES, (found.chosen_on, found.reported_on), strict=True):
            texts = [shown(self.metric, value) for value in (sides.before, sides.after)]
            ratio = f"× {sides.ratio:.2f}" if sides.before else ""
            rows.append((f"{self.metric}, {half}", *texts, ratio))  # type: ignore[arg-type]
        if (doubts := found.doubts(self.greater_is_better)) is not None:
            fewer, more = doubts
            rows.append((f"not monotone: {fewer} heads did better than {more}", "", "", ""))
        return rows

    def to_dict(self) -> dict[str, Any]:
        """The figures as JSON holds them; without what this run was not asked for."""
        optional = ("reached", "fewest_within", "tokens_per_second", "cache_per_token", "also")
        return {k: v for k, v in asdict(self).items() if k not in optional or v}

    def save(self, folder: Path) -> None:
        """Write `metrics.json`."""
        text = json.dumps({"format": _FORMAT, **self.to_dict()}, indent=2) + "\n"
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
        reached=_reached(data),
        fewest_within=_fewest_within(data),
        tokens_per_second=_if_there(data, "tokens_per_second"),
        cache_per_token=_if_there(data, "cache_per_token"),
        also=tuple(
            checked(name, str, "a metric") for name in entry({"also": [], **data}, "also", list)
        ),
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


def _if_there(data: dict[str, Any], name: str) -> Sides | None:
    return None if data.get(name) is None else _sides(data, name)


def _sides(data: dict[str, Any], name: str) -> Sides:
    both = entry(data, name, dict)
    before, after = finite(both, "before"), finite(both, "after")
    if not (before > 0 and after >= 0):
        raise ValueError(f"{name!r} is {before:g} before and {after:g} after a cut")
    return Sides(both["before"], both["after"])  # a count stays a whole number


def _reached(data: dict[str, Any]) -> Reached | None:
    if data.get("reached") is None:
        return None
    read = entry(data, "reached", dict)
    numbers = finite(read, "asked"), finite(read, "got")
    met = entry(read, "met", bool)
    return Reached(entry(read, "name", str), *numbers, met, _sides(read, "counted"))


def _fewest_within(data: dict[str, Any]) -> FewestWithin | None:
    if data.get("fewest_within") is None:
        return None
    read = entry(data, "fewest_within", dict)
    one, other = (
        Sides(entry(both, "before", float), entry(both, "after", float))
        for both in (entry(read, half, dict) for half in ("chosen_on", "reported_on"))
    )
    tried = [checked(pair, list, "a K that was tried") for pair in entry(read, "tried", list)]
    if any(len(pair) != 2 for pair in tried):
        raise ValueError("'tried' has something else than pairs of K and metric")
    pairs = tuple(
        (checked(keep, int, "a K that was tried"), float(checked(value, float, "its metric")))
        for keep, value in tried
    )
    return FewestWithin(finite(read, "asked"), entry(read, "heads", int), one, other, pairs)
