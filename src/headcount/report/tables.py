"""The papers' table: numbers of heads down, methods across, mean and spread over seeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from headcount.errors import HeadcountError
from headcount.stats.numbers import in_percent
from headcount.stats.significance import LEVEL, Significance, compare, holm
from headcount.study.read import Comparison, StudyData
from headcount.study.run_record import Run
from headcount.tasks.glue import GLUE


@dataclass(frozen=True)
class Cell:
    """What one method reached with one number of heads.

    Attributes:
        mean: over seeds, in the metric's own unit.
        deviation: the standard deviation over seeds; None for one seed.
        seeds: how many.
        best: whether no method of the row is better.
        against_best: a test against the best of the row; None for the best itself, and where the
            predictions do not allow one.
        corrected: its p-value, raised for the number of tests in the row.
    """

    mean: float
    deviation: float | None
    seeds: int
    best: bool = False
    against_best: Significance | None = None
    corrected: float | None = None

    @property
    def worse(self) -> bool:
        """Whether it is worse than the best by more than chance."""
        return self.corrected is not None and self.corrected < LEVEL


@dataclass(frozen=True)
class OwnCount:
    """What a method reached that found its own number of heads.

    Attributes:
        method: its name.
        penalty: λ; None if unknown.
        heads: mean number over seeds.
        cell: what it reached.
    """

    method: str
    penalty: float | None
    heads: float
    cell: Cell


@dataclass(frozen=True)
class Table:
    """One table.

    Attributes:
        title: model, task and evaluation set.
        metric: its name.
        methods: the columns.
        rows: by number of heads, most first; a method without results has no cell.
        unpruned: number of heads and score of the unpruned model.
        own_count: methods that found their own number of heads.
        notes: tests that could not be done.
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
    groups = comparison.own_count.groupby(["method", "penalty"], dropna=False)
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
                float(of["heads"].mean()),
                _cell(of["value"]),
            )
            for (method, penalty), of in groups
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
    """The cells with their tests against the best."""
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
    seeds = kept or common  # where none were kept, reading them says so
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


def cell_text(metric: str, cell: Cell) -> str:
    """Mean ± deviation; accuracies and correlations in percent."""
    unit = 100 if in_percent(metric) else 1
    text = f"{unit * cell.mean:.2f}"
    return text if cell.deviation is None else f"{text} ± {unit * cell.deviation:.2f}"


def seeds_text(cells: Sequence[Cell]) -> str:
    """How many seeds the cells of a row have: one number, or the fewest and the most."""
    counts = sorted({cell.seeds for cell in cells})
    return str(counts[0]) if len(counts) == 1 else f"{counts[0]}–{counts[-1]}"


def legend(table: Table, best: str = "best of each row in bold") -> str:
    """What the signs in a table mean, and how it shows the best."""
    tests = {
        cell.against_best.test
        for cells in table.rows.values()
        for cell in cells.values()
        if cell.against_best is not None
    }
    parts = ["Mean over seeds"]
    if any(cell.deviation is not None for row in table.rows.values() for cell in row.values()):
        parts[0] += " ± standard deviation"
    parts.append(best)
    if tests:
        parts.append(
            f"† worse than the best, p < {LEVEL:g} ({'; '.join(sorted(tests))}; over the seeds "
            "whose predictions both have, corrected by Holm's method within the row)"
        )
    return "; ".join(parts) + "."


def label(table: Table) -> str:
    """The metric with its unit."""
    name = table.metric.replace("_", " ")
    name = {"bleu": "BLEU", "chrf": "chrF"}.get(name, name)
    return f"{name}, %" if in_percent(table.metric) else name
