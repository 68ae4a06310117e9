"""The papers' table: methods by numbers of heads, mean and spread over seeds, the best first.

With each number of heads, every method is tested against the best. How a table is written is in
`table_text.py`, and what it says in one sentence in `finding.py`.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass, replace

import pandas as pd

from headcount.errors import HeadcountError
from headcount.stats.significance import LEVEL, Significance, compare, holm
from headcount.study.read import Comparison, StudyData
from headcount.study.run_record import Run
from headcount.tasks.glue import GLUE


@dataclass(frozen=True)
class Cell:
    """What one method reached with one number of heads.

    Attributes:
        mean: mean over seeds, in the metric's own unit.
        deviation: standard deviation over seeds; None for one seed.
        seeds: number of seeds.
        best: whether no method is better with this number of heads.
        against_best: test against the best with this number. None for the best itself, and if the
            predictions do not allow a test.
        corrected: p-value of that test, corrected for the number of tests with this number.
        speed: how many times as fast as the unpruned model it is; None if that was not measured.
        size: its share of the unpruned model's parameters; None if no readable run says so.
    """

    mean: float
    deviation: float | None
    seeds: int
    best: bool = False
    against_best: Significance | None = None
    corrected: float | None = None
    speed: float | None = None
    size: float | None = None

    @property
    def tested(self) -> bool:
        """Whether it was tested against the best."""
        return self.corrected is not None

    @property
    def worse(self) -> bool:
        """Whether it is significantly worse than the best."""
        return self.corrected is not None and self.corrected < LEVEL


@dataclass(frozen=True)
class OwnCount:
    """What a method reached that finds its own number of heads.

    Attributes:
        method: name of the method.
        penalty: the price λ of a head; None if unknown.
        asked: what was asked for instead of a number, as `cache=0.5`; empty for nothing.
        heads: number of heads that it kept, averaged over seeds.
        cell: what it reached.
    """

    method: str
    penalty: float | None
    asked: str
    heads: float
    cell: Cell


@dataclass(frozen=True)
class Table:
    """One table.

    Attributes:
        title: names of the model, the task and the evaluation set.
        split: name of the evaluation set.
        metric: name of the metric.
        greater_is_better: whether a higher value of the metric is better.
        methods: names of the methods, the best first, see `_by_quality`.
        rows: cells by method for each number of heads, most heads first. A method without results
            has no cell.
        unpruned: number of heads and score of the unpruned model; None if it was not run.
        own_count: methods that find their own number of heads.
        notes: sentences about tests that could not be done.
    """

    title: str
    split: str
    metric: str
    greater_is_better: bool
    methods: tuple[str, ...]
    rows: dict[int, dict[str, Cell]]
    unpruned: tuple[int, Cell] | None
    own_count: tuple[OwnCount, ...]
    notes: tuple[str, ...]

    @property
    def turned(self) -> bool:
        """Whether methods are written below each other: there are more of them than numbers."""
        return len(self.methods) > len(self.rows)


def build_table(study: StudyData, comparison: Comparison) -> Table:
    """Make the table of a model, task and evaluation set."""
    counted = comparison.counted
    notes: list[str] = []
    rows = {}
    for k in sorted(set(counted["k"]), reverse=True):
        of_k = counted[counted["k"] == k]
        cells = {
            method: _cell(study, of_k[of_k["method"] == method])
            for method in comparison.methods
            if (of_k["method"] == method).any()
        }
        pick: Callable[..., float] = max if comparison.greater_is_better else min
        top = pick(cell.mean for cell in cells.values())
        cells = {m: replace(c, best=math.isclose(c.mean, top)) for m, c in cells.items()}
        rows[int(k)] = _tested(study, comparison, of_k, cells, notes)
    unpruned = comparison.unpruned
    groups = comparison.own_count.groupby(["method", "penalty", "asked"], dropna=False)
    return Table(
        comparison.title,
        comparison.split,
        comparison.metric,
        comparison.greater_is_better,
        _by_quality(comparison, rows),
        rows,
        None if unpruned.empty else (int(unpruned["heads"].iloc[0]), _cell(study, unpruned)),
        tuple(
            OwnCount(
                str(method),
                None if math.isnan(penalty) else float(penalty),
                str(asked),
                float(of["heads"].mean()),
                _cell(study, of),
            )
            for (method, penalty, asked), of in groups
        ),
        tuple(dict.fromkeys(notes)),
    )


def ranking(table: Table, comparison: Comparison) -> list[str]:
    """All methods, the best first; last those that find their own number of heads."""
    return list(dict.fromkeys([*table.methods, *comparison.methods]))


def _by_quality(comparison: Comparison, rows: dict[int, dict[str, Cell]]) -> tuple[str, ...]:
    """The methods by their mean distance from the best with the same number of heads.

    A distance is a difference, and a ratio where less is better: a method that has lost the
    language has a perplexity of thousands.
    """
    methods = [name for name in comparison.methods if any(name in cells for cells in rows.values())]

    def behind(cells: dict[str, Cell], method: str) -> float:
        own = cells[method].mean
        best = next(cell.mean for cell in cells.values() if cell.best)
        if math.isclose(own, best):
            return 0.0  # also where both are infinite
        ratio = not comparison.greater_is_better and best > 0
        return math.log(own / best) if ratio else abs(own - best)

    def distance(method: str) -> float:
        return statistics.fmean(behind(cells, method) for cells in rows.values() if method in cells)

    return tuple(sorted(methods, key=distance))


def _cell(study: StudyData, rows: pd.DataFrame) -> Cell:
    """A cell of the results of all seeds."""
    values = rows["value"]
    results = [study.runs[name].result for name in rows["run"] if name]
    speeds = [speed.ratio for result in results if (speed := result.speed) is not None]
    return Cell(
        float(values.mean()),
        float(values.std(ddof=1)) if len(values) > 1 else None,
        len(values),
        speed=statistics.fmean(speeds) if speeds else None,
        size=statistics.fmean(r.parameters.ratio for r in results) if results else None,
    )


def is_of_harness(study: StudyData, comparison: Comparison) -> bool:
    """Whether the results are those of lm-evaluation-harness."""
    names = comparison.rows["run"]
    return any(comparison.split in study.runs[name].result.harness for name in names if name)


def _tested(
    study: StudyData,
    comparison: Comparison,
    rows: pd.DataFrame,
    cells: dict[str, Cell],
    notes: list[str],
) -> dict[str, Cell]:
    """The cells of one number of heads, with their tests against the best."""
    if is_of_harness(study, comparison):
        notes.append(
            f"{comparison.title}: not tested, since lm-evaluation-harness keeps no answers"
        )
        return cells
    deciding = {study.runs[name].result.metric for name in rows["run"] if name}
    if deciding and comparison.metric not in deciding:
        notes.append(
            f"{comparison.title}: not tested, since the answers kept are those of another metric"
        )
        return cells
    best = next(method for method, cell in cells.items() if cell.best)
    tests: dict[str, Significance] = {}
    for method, cell in cells.items():
        if cell.best:
            continue
        try:
            tests[method] = _test(study, comparison, rows, best, method)
        except HeadcountError as error:
            k = int(rows["k"].iloc[0])
            notes.append(f"{comparison.title}: {method} with {k} heads is not tested: {error}")
    raised = holm([test.p_value for test in tests.values()])
    corrected = dict(zip(tests, raised, strict=True))
    return {
        method: replace(cell, against_best=tests.get(method), corrected=corrected.get(method))
        for method, cell in cells.items()
    }


def _test(
    study: StudyData, comparison: Comparison, rows: pd.DataFrame, best: str, other: str
) -> Significance:
    runs: list[dict[int, Run]] = []
    values: list[dict[int, float]] = []
    for method in (best, other):
        of_method = rows[(rows["method"] == method) & (rows["run"] != "")]
        pairs = zip(of_method["seed"], of_method["run"], strict=True)
        runs.append({int(seed): study.runs[name] for seed, name in pairs})
        values.append(dict(zip(map(int, of_method["seed"]), of_method["value"], strict=True)))
    common = sorted(runs[0].keys() & runs[1].keys())
    kept = [s for s in common if all(of[s].has_predictions(comparison.split) for of in runs)]
    seeds = kept or common  # if none were kept, the error of reading them says so
    ahead = sum(values[1][seed] - values[0][seed] for seed in seeds)
    if ahead * (1 if comparison.greater_is_better else -1) > 0:
        raise HeadcountError(
            f"on the seeds that both have it is ahead of {best}; run both with the same seeds"
        )
    answers = [[of[seed].predictions(comparison.split) for seed in seeds] for of in runs]
    glue = GLUE.get(comparison.task)
    positive = glue.labels[glue.positive] if glue and glue.labels else None
    signature = str(rows["signature"].iloc[0])
    return compare(comparison.metric, answers[0], answers[1], signature, positive)
