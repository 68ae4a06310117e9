"""The papers' table: numbers of heads down, methods across, mean and spread over seeds.

Every method is tested against the best of its row. How a table is written is in `table_text.py`.
"""

from __future__ import annotations

import math
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
        best: whether no method of the row is better.
        against_best: test against the best of the row. None for the best itself, and if the
            predictions do not allow a test.
        corrected: p-value of that test, corrected for the number of tests in the row.
    """

    mean: float
    deviation: float | None
    seeds: int
    best: bool = False
    against_best: Significance | None = None
    corrected: float | None = None

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
        metric: name of the metric.
        methods: names of the columns.
        rows: cells of each row by method, most heads first. A method without results has no cell.
        unpruned: number of heads and score of the unpruned model; None if it was not run.
        own_count: methods that find their own number of heads.
        notes: sentences about tests that could not be done.
    """

    title: str
    metric: str
    methods: tuple[str, ...]
    rows: dict[int, dict[str, Cell]]
    unpruned: tuple[int, Cell] | None
    own_count: tuple[OwnCount, ...]
    notes: tuple[str, ...]


def build_table(study: StudyData, comparison: Comparison) -> Table:
    """Make the table of a model, task and evaluation set."""
    counted = comparison.counted
    notes: list[str] = []
    rows = {}
    for k in sorted(set(counted["k"]), reverse=True):
        of_k = counted[counted["k"] == k]
        cells = {
            method: _cell(of_k[of_k["method"] == method]["value"])
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
        comparison.metric,
        tuple(m for m in comparison.methods if (counted["method"] == m).any()),
        rows,
        None if unpruned.empty else (int(unpruned["heads"].iloc[0]), _cell(unpruned["value"])),
        tuple(
            OwnCount(
                str(method),
                None if math.isnan(penalty) else float(penalty),
                str(asked),
                float(of["heads"].mean()),
                _cell(of["value"]),
            )
            for (method, penalty, asked), of in groups
        ),
        tuple(dict.fromkeys(notes)),
    )


def _cell(values: pd.Series) -> Cell:
    deviation = float(values.std(ddof=1)) if len(values) > 1 else None
    return Cell(float(values.mean()), deviation, len(values))


def _tested(
    study: StudyData,
    comparison: Comparison,
    rows: pd.DataFrame,
    cells: dict[str, Cell],
    notes: list[str],
) -> dict[str, Cell]:
    """The cells of a row, with their tests against the best."""
    if any(comparison.split in study.runs[name].result.harness for name in rows["run"] if name):
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
