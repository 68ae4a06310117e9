"""Analyses of studies.

`headcount agreement`: do methods, seeds and tasks keep the same heads?
`headcount dynamics`: when do the selected heads stop changing?
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from headcount.cli.show import show_analysis


def agreement(
    studies: Annotated[
        list[Path], typer.Argument(help="Output folders of headcount compare, of one model.")
    ],
    output: Annotated[
        Path | None, typer.Option(help="New folder; without it, analyses/ of the first study.")
    ] = None,
) -> None:
    """Compare the kept heads of methods and seeds, and of tasks if several studies are given.

    Example: headcount agreement study
    """
    from headcount.analysis.agreement import Agreement, choices_of
    from headcount.analysis.agreement import agreement as compare
    from headcount.analysis.base import FOLDER, refuse_bad_place, save_analysis
    from headcount.study.read import read_study

    folder = output or studies[0] / FOLDER / Agreement.kind
    refuse_bad_place(folder)
    model = str(read_study(studies[0]).results["model"].iloc[0])
    found = compare(list(choices_of(studies)), model)
    save_analysis(found, folder)
    show_analysis(Console(), found, folder)


def dynamics(
    study: Annotated[Path, typer.Argument(help="The output folder of headcount compare.")],
    output: Annotated[
        Path | None, typer.Option(help="New folder; without it, analyses/ of the study.")
    ] = None,
) -> None:
    """Tell when each run's selected heads stop moving, and how warm the gates were then.

    Example: headcount dynamics study
    """
    from headcount.analysis.base import FOLDER, refuse_bad_place, save_analysis
    from headcount.analysis.dynamics import Dynamics
    from headcount.analysis.dynamics import dynamics as follow

    folder = output or study / FOLDER / Dynamics.kind
    refuse_bad_place(folder)
    found = follow(study)
    save_analysis(found, folder)
    show_analysis(Console(), found, folder)
