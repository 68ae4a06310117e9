"""Read a study's folder: its results as a table, its runs, and what is missing or broken."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import pandas as pd

from headcount.errors import HeadcountError
from headcount.json_file import read_bytes
from headcount.pruners.methods import METHODS, UNPRUNED
from headcount.runs.unfinished import UNFINISHED
from headcount.stats.numbers import less_is_better
from headcount.study.plan import SETTINGS, StudySettings
from headcount.study.results import COLUMNS, read_results
from headcount.study.results import FILE as RESULTS
from headcount.study.run_record import Run, read_run

_LARGEST = 2.0**63  # what an integer of a table can hold
_Wanted = tuple[str, float | None, int]  # method or variant, heads asked for, seed


@dataclass(frozen=True)
class Comparison:
    """Results that fit into one table: one model, task, metric and evaluation set.

    Attributes:
        model: the name of the model.
        task: the name of the task.
        metric: the metric that decides.
        split: the evaluation set.
        greater_is_better: whether a higher value of the metric is better.
        rows: rows of the study's results with five more columns. `k` is the number of heads asked
            for, missing where a method found its own. `asked` is what was asked for instead, as
            `cache=0.5`, or "". `run` is the name of the run's folder, or "". `penalty` is λ,
            missing where there is none. `pruner` is the method behind a variant.
        order: the study's methods and variants, in its own order.
    """

    model: str
    task: str
    metric: str
    split: str
    greater_is_better: bool
    rows: pd.DataFrame
    order: tuple[str, ...]

    @cached_property
    def methods(self) -> list[str]:
        """All methods that have results, except the unpruned model, in the study's order."""
        found = set(self.rows["method"]) - {UNPRUNED}
        return [name for name in self.order if name in found]

    @cached_property
    def unpruned(self) -> pd.DataFrame:
        """The rows of the unpruned model."""
        return self.rows[self.rows["method"] == UNPRUNED]

    @cached_property
    def counted(self) -> pd.DataFrame:
        """The rows of methods that were told how many heads to keep."""
        return self.rows[(self.rows["method"] != UNPRUNED) & self.rows["k"].notna()]

    @cached_property
    def own_count(self) -> pd.DataFrame:
        """The rows of methods that found their own count."""
        return self.rows[(self.rows["method"] != UNPRUNED) & self.rows["k"].isna()]

    @property
    def title(self) -> str:
        """A title for tables and figures."""
        return f"{self.model}, {self.task}, {self.split}"


@dataclass
class StudyData:
    """All of a study that could be read.

    Attributes:
        folder: the study's folder.
        results: a table with one row per run and evaluation set.
        runs: the finished runs by the names of their folders.
        order: methods and variants in the order of the study file, then of `headcount methods`.
        problems: what is missing or broken, one sentence each.
    """

    folder: Path
    results: pd.DataFrame
    runs: dict[str, Run]
    order: tuple[str, ...]
    problems: list[str] = field(default_factory=list)

    def comparisons(self) -> Iterator[Comparison]:
        """What can be compared, in the order of the results."""
        keys = ["model", "task", "metric", "split"]
        for (model, task, metric, split), rows in self.results.groupby(keys, sort=False):
            runs = [self.runs[name] for name in rows["run"] if name]
            greater = (
                runs[0].result.greater_is_better
                if runs and runs[0].result.metric == metric
                else not less_is_better(str(metric))
            )
            yield Comparison(
                str(model), str(task), str(metric), str(split), greater, rows, self.order
            )


def read_study(folder: str | Path, methods: Sequence[str] = ()) -> StudyData:
    """Read a study; what is missing or broken is noted in its problems, not raised.

    Args:
        folder: the output folder of `headcount compare`.
        methods: the methods and variants to read, in this order, beside the unpruned model; empty
            for all.
    """
    folder = Path(folder)
    problems: list[str] = []
    results = _read_results(folder, problems)
    runs = {}
    for place in sorted(path for path in folder.glob("runs/*") if path.is_dir()):
        if place.name.endswith(UNFINISHED):
            problems.append(f"run {place.name.removesuffix(UNFINISHED)} is not finished")
            continue
        run = read_run(place, problems)
        if run is not None:
            runs[run.name] = run
    results["run"] = [_run_of(row, runs) for _, row in results.iterrows()]
    results["penalty"] = [
        math.nan if not name or runs[name].penalty is None else runs[name].penalty
        for name in results["run"]
    ]
    results["pruner"] = [
        str(runs[name].settings.get("method", method)) if name else method
        for name, method in zip(results["run"], results["method"], strict=True)
    ]
    for name in sorted(runs.keys() - set(results["run"])):
        problems.append(f"run {name} is finished but has no row in {RESULTS}")
    for row in results[results["run"] == ""].itertuples():
        problems.append(f"no readable run belongs to the result {row.signature} on {row.split}")
    asked = _read_settings(folder, problems)
    if methods:
        results = _only(results, methods)
        runs = {name: run for name, run in runs.items() if name in set(results["run"])}
        asked = None if asked is None else replace(asked, methods=tuple(methods))
    problems += _gaps(results, asked)
    named = methods if asked is None else asked.methods
    return StudyData(folder, results, runs, _order(results, named), problems)


def _read_results(folder: Path, problems: list[str]) -> pd.DataFrame:
    path = folder / RESULTS
    try:
        read_bytes(path)  # refuses what is no file, and could not be read to its end
        table = read_results(path)
        if not isinstance(table.index, pd.RangeIndex):  # where pandas puts a field too many
            raise ValueError("its lines have more fields than its header")
    except (HeadcountError, OSError, ValueError) as error:
        raise HeadcountError(
            f"{folder} is no study: its {RESULTS} cannot be read ({error}); give the output folder "
            "of headcount compare"
        ) from error
    missing = [name for name in COLUMNS if name not in table]
    if missing:
        raise HeadcountError(
            f"{path} has no column {missing[0]}; give the output folder of headcount compare"
        )
    for name in ("keep", "seed", "value", "heads", "parameters", "seconds"):
        table[name] = [_number(value) for value in table[name]]
    # A perplexity may be infinite; nothing else may.
    for name in ("keep", "seed", "heads", "parameters", "seconds"):
        table[name] = table[name].where(table[name].abs() < _LARGEST)
    whole = table["seed"] % 1 == 0
    broken = table[["value", "heads"]].isna().any(axis=1) | ~whole
    for row in table[broken].itertuples():
        problems.append(f"line {row.Index + 2} of {RESULTS} has no value, heads or seed; left out")
    table = table[~broken].copy()
    if table.empty:
        raise HeadcountError(f"{path} has no results yet; finish a run of the study first")
    table["seed"] = table["seed"].astype(int)
    # For a fraction, only the run knows the count.
    counts = table["keep"].where(table["keep"] >= 1, table["heads"])
    told = table["keep"].notna() | (table["method"] == UNPRUNED)
    table["k"] = counts.where(told)
    asked = table["signature"].astype(str).str.extract(r"\|asked:([^|]+)", expand=False)
    table["asked"] = asked.fillna("")
    twice = table.duplicated(
        ["model", "task", "method", "keep", "seed", "split", "metric", "signature"], keep="last"
    )
    for row in table[twice].itertuples():
        problems.append(f"{RESULTS} has {row.signature} on {row.split} twice; the last one counts")
    return table[~twice].reset_index(drop=True)


def _number(value: object) -> float:
    try:
        return float(str(value))
    except ValueError:
        return math.nan


def _run_of(row: pd.Series, runs: dict[str, Run]) -> str:
    """The name of the run that gave a result: one with its signature, method, model and value."""
    found = [
        run
        for run in runs.values()
        if run.method == row["method"]
        and run.result.signatures.get(row["split"]) == row["signature"]
        and Path(str(run.settings.get("model", ""))).name == Path(row["model"]).name
        and math.isclose(
            {**run.result.harness, **run.result.scores}.get(row["split"], {}).get(
                row["metric"], math.nan
            ),
            row["value"],
            rel_tol=1e-6,
            abs_tol=1e-9,
        )
    ]
    return found[0].name if found else ""


def _read_settings(folder: Path, problems: list[str]) -> StudySettings | None:
    """What the study was asked for; None if that is not known."""
    path = folder / SETTINGS
    if not path.is_file():
        return None
    try:
        return StudySettings.read(path)
    except HeadcountError as error:
        problems.append(f"what the study asked for is guessed from its results: {error}")
        return None


def _only(results: pd.DataFrame, methods: Sequence[str]) -> pd.DataFrame:
    found = [name for name in dict.fromkeys(results["method"]) if name != UNPRUNED]
    for name in methods:
        if name not in found:
            raise HeadcountError(
                f"the study has no results of {name!r}; choose among {', '.join(found)}"
            )
    return results[results["method"].isin([UNPRUNED, *methods])].reset_index(drop=True)


def _gaps(results: pd.DataFrame, asked: StudySettings | None) -> Iterator[str]:
    """What is missing: a sentence for each method and number of heads, with the seeds.

    If it is not known what the study was asked for, a full grid of what has results is expected.
    """
    for (model, task, split), rows in results.groupby(["model", "task", "split"], sort=False):
        if asked is None:
            column = "k"
            wanted: Iterable[_Wanted] = _grid(rows)
        else:
            column = "keep"
            wanted = [
                (run.name, run.keep if isinstance(run.keep, int | float) else None, run.seed)
                for run in asked.runs().values()
            ]
        counts = [None if pd.isna(count) else float(count) for count in rows[column]]
        done = set(zip(rows["method"], counts, rows["seed"], strict=True))
        lost: dict[tuple[str, float | None], list[str]] = {}
        for method, count, seed in wanted:
            if (method, count, seed) not in done:
                lost.setdefault((method, count), []).append(str(seed))
        for (method, count), seeds in lost.items():
            share = "of all " if count is not None and count < 1 else ""
            heads = "" if count is None else f" with {count:g} {share}heads"
            yield (
                f"{model}, {task}, {split}: no result of {method}{heads} for seed "
                f"{', '.join(seeds)}"
            )


def _grid(rows: pd.DataFrame) -> Iterator[_Wanted]:
    """Every method that was told how many heads to keep, with every number and seed."""
    counted = rows[(rows["method"] != UNPRUNED) & rows["k"].notna()]
    for method in dict.fromkeys(counted["method"]):
        for k in sorted(set(counted["k"]), reverse=True):
            for seed in sorted(set(counted["seed"])):
                yield str(method), float(k), int(seed)


def _order(results: pd.DataFrame, named: Sequence[str]) -> tuple[str, ...]:
    found = set(results["method"])
    known = [name for name in METHODS if name in found]
    return tuple(dict.fromkeys([*named, *known, *sorted(found)]))
