"""`headcount dynamics`: when does the choice of heads settle?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from headcount.cli.show import show_analysis


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
