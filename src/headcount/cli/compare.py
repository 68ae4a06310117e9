"""`headcount compare`: run a study, or go on with one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from headcount.cli.show import Bars, show_rows
from headcount.errors import HeadcountError


def compare(
    study: Annotated[Path, typer.Argument(help="A study file (YAML).")],
    output: Annotated[Path, typer.Option(help="Folder of the study; one that exists goes on.")],
) -> None:
    """Run every method, number of heads and seed of a study, once each, and collect the results.

    Example: headcount compare study.yaml --output study
    """
    from headcount.runs.result import shown
    from headcount.study.plan import StudySettings
    from headcount.study.results import load_study
    from headcount.study.run import run_study

    settings = StudySettings.read(study)
    console = Console()
    with Bars(console) as bars:
        failed = run_study(settings, output, bars, bars.overall)
    results = load_study(output)
    rows = [
        (str(row.method), f"{row.heads}", f"{row.seed}", str(row.split),
         shown(str(row.metric), float(row.value)))
        for row in results.itertuples()
    ]  # fmt: skip
    show_rows(console, str(study), ("heads", "seed", "split", "metric"), rows)
    console.print(f"all results: {output}/results.csv", highlight=False, markup=False)
    if failed:
        name, reason = next(iter(failed.items()))
        raise HeadcountError(
            f"{len(failed)} of the runs failed, the first is {name}: {reason}; mend it, and the "
            "same command does what is missing"
        )
