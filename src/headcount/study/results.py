"""The results of a study as one table: `results.csv`."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import TYPE_CHECKING

from headcount.atomic import write_atomically
from headcount.errors import HeadcountError
from headcount.runs.result import FILE as RESULT
from headcount.runs.result import RunResult
from headcount.runs.resume import SETTINGS

if TYPE_CHECKING:
    import pandas as pd

FILE = "results.csv"
COLUMNS = (
    "model", "task", "method", "keep", "seed", "split", "metric", "value", "heads", "parameters",
    "seconds", "signature",
)  # fmt: skip


def write_results(folder: Path) -> Path:
    """Write `results.csv` from all finished runs: one row per run and evaluation set."""
    rows = []
    for run in sorted(folder.glob(f"runs/*/{RESULT}")):
        result = RunResult.load(run.parent)
        settings = json.loads((run.parent / SETTINGS).read_text(encoding="utf-8"))
        for split, scores in result.scores.items():
            rows.append(
                {
                    "model": Path(settings["model"]).name,
                    "task": settings["task"],
                    "method": settings.get("variant") or result.method,
                    "keep": settings["keep"],
                    "seed": settings["seed"],
                    "split": split,
                    "metric": result.metric,
                    "value": scores[result.metric],
                    "heads": int(result.heads.after),
                    "parameters": int(result.parameters.after),
                    "seconds": round(result.cost, 1),
                    "signature": result.signatures[split],
                }
            )

    def write(temporary: Path) -> None:
        with temporary.open("w", encoding="utf-8", newline="") as file:
            table = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            table.writeheader()
            table.writerows(rows)

    write_atomically(folder / FILE, write)
    return folder / FILE


def load_study(folder: str | Path) -> pd.DataFrame:
    """The results of a study as a table of pandas: one row per run and evaluation set.

    Args:
        folder: the output folder of `headcount compare`.
    """
    import pandas as pd

    path = Path(folder) / FILE
    if not path.is_file():
        raise HeadcountError(f"{folder} has no {FILE}; give the output of headcount compare")
    return pd.read_csv(path)
