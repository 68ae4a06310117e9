"""The results of a study as one table: `results.csv`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from headcount.errors import HeadcountError
from headcount.json_file import read_json
from headcount.runs.escape import csv_text, read_csv_cell, write_names
from headcount.runs.result import FILE as RESULT
from headcount.runs.result import RunResult
from headcount.runs.unfinished import SETTINGS, UNFINISHED

if TYPE_CHECKING:
    import pandas as pd

FILE = "results.csv"
COLUMNS = (
    "model", "task", "method", "keep", "seed", "split", "metric", "value", "heads", "parameters",
    "seconds", "signature",
)  # fmt: skip
_TEXTS = ("model", "task", "method", "split", "metric", "signature")


def write_results(folder: Path) -> dict[str, str]:
    """Write `results.csv` from all finished runs: one row per run, evaluation set and metric.

    Tasks of lm-evaluation-harness are such sets, with a row for each accuracy.

    Returns:
        Why runs are left out, by their names: their files are damaged.
    """
    rows: list[tuple[object, ...]] = []
    damaged = {}
    for run in _finished(folder):
        try:
            rows += _rows(run)
        except HeadcountError as error:
            damaged[run.name] = str(error)
    write_names(folder / FILE, csv_text(COLUMNS, rows))
    return damaged


def _finished(folder: Path) -> Iterator[Path]:
    """The folders of finished runs, without those that are still being written or were stopped."""
    for path in sorted(folder.glob(f"runs/*/{RESULT}")):
        run = path.parent
        if not run.name.startswith(".") and not run.name.endswith(UNFINISHED):
            yield run


def _rows(run: Path) -> list[tuple[object, ...]]:
    """The rows of a run, one per evaluation set, in the order of `COLUMNS`."""
    try:
        result = RunResult.load(run)
        settings = read_json(run / SETTINGS)
        return [
            (
                Path(settings["model"]).name,
                settings["task"],
                settings.get("variant") or result.method,
                settings["keep"],
                settings["seed"],
                split,
                metric,
                value,
                int(result.heads.after),
                int(result.parameters.after),
                round(result.cost, 1),
                result.signatures[split],
            )
            for split, metric, value in _values(result)
        ]
    except (HeadcountError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise HeadcountError(
            f"its files are damaged ({_reason(error)}); delete the folder {run}, and headcount "
            "compare does the run again"
        ) from error


def _values(result: RunResult) -> Iterator[tuple[str, str, float]]:
    """Evaluation set, metric and value of each row of a run."""
    for split, scores in result.scores.items():
        for metric in dict.fromkeys((result.metric, *result.also)):
            if metric in scores:
                yield split, metric, scores[metric]
    for task, scores in result.harness.items():
        for metric, value in _accuracies(scores).items():
            yield task, metric, value


def _accuracies(scores: dict[str, float]) -> dict[str, float]:
    """The metrics of a task of the harness that are accuracies; all of them if none is."""
    right = {
        name: value for name, value in scores.items() if name.startswith(("acc", "exact_match"))
    }
    return right or scores


def _reason(error: Exception) -> str:
    if isinstance(error, HeadcountError):
        return str(error).partition("; ")[0]  # what to do is said after it
    return f"{RESULT} or {SETTINGS}: {type(error).__name__}: {error}"


def load_study(folder: str | Path) -> pd.DataFrame:
    """The results of a study as a table of pandas: one row per run and evaluation set.

    Args:
        folder: the output folder of `headcount compare`.
    """
    path = Path(folder) / FILE
    if not path.is_file():
        raise HeadcountError(f"{folder} has no {FILE}; give the output of headcount compare")
    try:
        return read_results(path)
    except (OSError, ValueError) as error:
        raise HeadcountError(
            f"{path} cannot be read: {str(error).splitlines()[0]}; headcount compare writes it "
            "again from the study's runs"
        ) from error


def read_results(path: Path) -> pd.DataFrame:
    """Read `results.csv`, with every name as the runs have it, be it `NA` or `007`."""
    import pandas as pd

    return pd.read_csv(
        path,
        converters=dict.fromkeys(_TEXTS, read_csv_cell),
        keep_default_na=False,  # pandas would take a model that is called NA for a missing one
        na_values={name: ["", "nan"] for name in COLUMNS if name not in _TEXTS},
    )
