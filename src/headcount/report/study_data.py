"""A study's folder, read: its results as a table, its runs, and what is missing or broken."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from headcount.errors import HeadcountError
from headcount.heads.mask import HeadMask
from headcount.runs.importance import FILE as IMPORTANCE
from headcount.runs.importance import load_importances
from headcount.runs.methods import METHODS
from headcount.runs.result import RunResult
from headcount.runs.unfinished import UNFINISHED
from headcount.study.results import COLUMNS
from headcount.study.results import FILE as RESULTS
from headcount.training.history import SelectionHistory

UNPRUNED = "unpruned"


@dataclass(frozen=True)
class Predictions:
    """What a model said of each example of an evaluation set, and what was right.

    Attributes:
        predicted: one per example, in the order of the set.
        references: likewise.
    """

    predicted: tuple[Any, ...]
    references: tuple[Any, ...]

    def __len__(self) -> int:
        return len(self.predicted)


@dataclass(frozen=True)
class Run:
    """One finished run of a study.

    Attributes:
        name: of its folder.
        folder: where its files are.
        settings: as `settings.json` holds them.
        result: as `metrics.json` holds it.
        mask: the kept heads; None if its file is missing or broken.
        history: for methods that learn.
        importance: of every head by its flat index, NaN where none is known; None without a file.
    """

    name: str
    folder: Path
    settings: dict[str, Any]
    result: RunResult
    mask: HeadMask | None
    history: SelectionHistory | None
    importance: list[float] | None = None

    @property
    def penalty(self) -> float | None:
        """λ of a method that finds its own count; None for all others."""
        if self.settings.get("keep") is not None:
            return None
        value = (self.settings.get("settings") or {}).get("lambda")
        return None if value is None else float(value)

    def predictions(self, split: str) -> Predictions:
        """Read the predictions of an evaluation set; they are large, so only when asked for."""
        path = self.folder / "predictions" / f"{split}.json"
        try:
            rows = json.loads(path.read_text(encoding="utf-8"))
            return Predictions(
                tuple(row["prediction"] for row in rows), tuple(row["reference"] for row in rows)
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise HeadcountError(
                f"run {self.name} has no readable predictions of {split} "
                f"({type(error).__name__}: {error}); run it again to compare it example by example"
            ) from error


@dataclass(frozen=True)
class Comparison:
    """Results that can stand in one table: one model, task, metric and evaluation set.

    Attributes:
        model: its name.
        task: its name.
        metric: that decides.
        split: the evaluation set.
        greater_is_better: of the metric.
        rows: of the study's results; with `k`, the number of heads asked for, which is missing
            where a method found its own, `run`, the name of the run's folder or "", and `penalty`.
    """

    model: str
    task: str
    metric: str
    split: str
    greater_is_better: bool
    rows: pd.DataFrame

    @cached_property
    def methods(self) -> list[str]:
        """All but the unpruned one, in the order of `headcount prune --help`."""
        known = list(METHODS)
        found = set(self.rows["method"]) - {UNPRUNED}
        return sorted(found, key=lambda m: (known.index(m) if m in known else len(known), m))

    @cached_property
    def unpruned(self) -> pd.DataFrame:
        """Rows of the unpruned model."""
        return self.rows[self.rows["method"] == UNPRUNED]

    @cached_property
    def counted(self) -> pd.DataFrame:
        """Rows of methods that were told how many heads to keep."""
        return self.rows[(self.rows["method"] != UNPRUNED) & self.rows["k"].notna()]

    @cached_property
    def own_count(self) -> pd.DataFrame:
        """Rows of methods that found their own count."""
        return self.rows[(self.rows["method"] != UNPRUNED) & self.rows["k"].isna()]

    @property
    def title(self) -> str:
        """For tables and figures."""
        return f"{self.model}, {self.task}, {self.split}"


@dataclass
class StudyData:
    """All of a study that could be read.

    Attributes:
        folder: of the study.
        results: one row per run and evaluation set.
        runs: by name.
        problems: what is missing or broken, one sentence each.
    """

    folder: Path
    results: pd.DataFrame
    runs: dict[str, Run]
    problems: list[str] = field(default_factory=list)

    def comparisons(self) -> Iterator[Comparison]:
        """What can be compared, in the order of the results."""
        keys = ["model", "task", "metric", "split"]
        for (model, task, metric, split), rows in self.results.groupby(keys, sort=False):
            runs = [self.runs[name] for name in rows["run"] if name]
            greater = (
                runs[0].result.greater_is_better
                if runs
                else not str(metric).startswith(("perplexity", "loss"))
            )
            yield Comparison(str(model), str(task), str(metric), str(split), greater, rows)


def read_study(folder: str | Path) -> StudyData:
    """Read a study; what is missing or broken is noted in its problems, not raised.

    Args:
        folder: with `results.csv` and `runs/`.
    """
    folder = Path(folder)
    problems: list[str] = []
    results = _read_results(folder, problems)
    runs = {}
    for place in sorted(path for path in folder.glob("runs/*") if path.is_dir()):
        if place.name.endswith(UNFINISHED):
            problems.append(f"run {place.name.removesuffix(UNFINISHED)} is not finished")
            continue
        run = _read_run(place, problems)
        if run is not None:
            runs[run.name] = run
    results["run"] = [_run_of(row, runs) for _, row in results.iterrows()]
    results["penalty"] = [
        math.nan if not name or runs[name].penalty is None else runs[name].penalty
        for name in results["run"]
    ]
    for name in sorted(runs.keys() - set(results["run"])):
        problems.append(f"run {name} is finished but has no row in {RESULTS}")
    for row in results[results["run"] == ""].itertuples():
        problems.append(f"no readable run belongs to the result {row.signature} on {row.split}")
    problems += _gaps(results)
    return StudyData(folder, results, runs, problems)


def _read_results(folder: Path, problems: list[str]) -> pd.DataFrame:
    path = folder / RESULTS
    try:
        table = pd.read_csv(path)
    except (OSError, ValueError) as error:
        what = getattr(error, "strerror", None) or error
        raise HeadcountError(
            f"{folder} is no study: its {RESULTS} cannot be read ({what}); give the output folder "
            "of headcount compare"
        ) from error
    missing = [name for name in COLUMNS if name not in table]
    if missing:
        raise HeadcountError(
            f"{path} has no column {missing[0]}; give the output folder of headcount compare"
        )
    for name in ("keep", "seed", "value", "heads", "parameters", "seconds"):
        table[name] = pd.to_numeric(table[name], errors="coerce").astype(float)
    for name in ("model", "task", "method", "split", "metric", "signature"):
        table[name] = table[name].fillna("").astype(str)
    broken = table[["value", "heads", "seed"]].isna().any(axis=1)
    for row in table[broken].itertuples():
        problems.append(f"line {row.Index + 2} of {RESULTS} has no value, heads or seed; left out")
    table = table[~broken].copy()
    if table.empty:
        raise HeadcountError(f"{path} has no results yet; finish a run of the study first")
    table["seed"] = table["seed"].astype(int)
    # A fraction asks for a count that only the run knows.
    counts = table["keep"].where(table["keep"] >= 1, table["heads"])
    told = table["keep"].notna() | (table["method"] == UNPRUNED)
    table["k"] = counts.where(told)
    twice = table.duplicated(
        ["model", "task", "method", "keep", "seed", "split", "metric", "signature"], keep="last"
    )
    for row in table[twice].itertuples():
        problems.append(f"{RESULTS} has {row.signature} on {row.split} twice; the last one counts")
    return table[~twice].reset_index(drop=True)


def _read_run(folder: Path, problems: list[str]) -> Run | None:
    name = folder.name
    try:
        result = RunResult.load(folder)
        settings = json.loads((folder / "settings.json").read_text(encoding="utf-8"))
        if not isinstance(settings, dict):
            raise ValueError("settings.json holds no settings")
    except (HeadcountError, OSError, ValueError) as error:
        problems.append(f"run {name} is missing or broken: {error}")
        return None
    mask = history = importance = None
    try:
        mask = HeadMask.load(folder / "mask.json")
    except HeadcountError as error:
        problems.append(f"run {name} has no readable mask: {error}")
    if (folder / "selection_history.json").is_file():
        try:
            history = SelectionHistory.load(folder / "selection_history.json")
        except HeadcountError as error:
            problems.append(f"run {name} has no readable selection history: {error}")
    if (folder / IMPORTANCE).is_file():
        try:
            _, importance = load_importances(folder / IMPORTANCE)
            if mask is not None and len(importance) != mask.born:
                problems.append(
                    f"run {name} has importances of {len(importance)} heads, but its mask is of "
                    f"{mask.born}; they are left out"
                )
                importance = None
        except HeadcountError as error:
            problems.append(f"run {name} has no readable importances: {error}")
    return Run(name, folder, settings, result, mask, history, importance)


def _run_of(row: pd.Series, runs: dict[str, Run]) -> str:
    """The run that gave a result: the signature tells, and where two share it, model and value."""
    found = [
        run
        for run in runs.values()
        if run.result.signatures.get(row["split"]) == row["signature"]
        and Path(str(run.settings.get("model", ""))).name == Path(row["model"]).name
        and math.isclose(
            run.result.scores.get(row["split"], {}).get(row["metric"], math.nan),
            row["value"],
            rel_tol=1e-6,
            abs_tol=1e-9,
        )
    ]
    return found[0].name if found else ""


def _gaps(results: pd.DataFrame) -> Iterator[str]:
    """Results that a full grid of methods, numbers of heads and seeds would have."""
    counted = results[(results["method"] != UNPRUNED) & results["k"].notna()]
    for (model, task, split), rows in counted.groupby(["model", "task", "split"], sort=False):
        seeds = sorted(set(rows["seed"]))
        for method, of_method in rows.groupby("method", sort=False):
            done = set(zip(of_method["k"], of_method["seed"], strict=True))
            for k in sorted(set(rows["k"]), reverse=True):
                lost = [str(seed) for seed in seeds if (k, seed) not in done]
                if lost:
                    yield (
                        f"{model}, {task}, {split}: no result of {method} with {k:.0f} heads for "
                        f"seed {', '.join(lost)}"
                    )
