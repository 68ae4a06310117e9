"""Analyses of studies.

`headcount agreement`: do methods, seeds and tasks keep the same heads?
`headcount dynamics`: when do the selected heads stop changing?
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from rich.console import Console

from headcount.cli.help import OUTPUT, argument, option
from headcount.cli.show import show_analysis


def agreement(
    studies: Annotated[
        list[Path], argument("STUDIES", "Output folders of headcount compare, of one model.")
    ],
    output: Annotated[
        Path | None,
        option(OUTPUT, "FOLDER", "A new folder; without it, analyses/ of the first study."),
    ] = None,
) -> None:
    """Compare the heads that methods, seeds and tasks keep.

    Examples:
        # Methods and seeds of one study
        headcount agreement study
        # Tasks as well: the same model in two studies
        headcount agreement mnli-study sst2-study --output agreement
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
    study: Annotated[Path, argument("STUDY", "The output folder of headcount compare.")],
    output: Annotated[
        Path | None, option(OUTPUT, "FOLDER", "A new folder; without it, analyses/ of the study.")
    ] = None,
) -> None:
    """Show when the selected heads of each run stop changing.

    It also shows how high the temperature of the gates was then.

    Examples:
        # The figures go into the study's folder
        headcount dynamics study
        # They go elsewhere
        headcount dynamics study --output dynamics
    """
    from headcount.analysis.base import FOLDER, refuse_bad_place, save_analysis
    from headcount.analysis.dynamics import Dynamics
    from headcount.analysis.dynamics import dynamics as follow

    folder = output or study / FOLDER / Dynamics.kind
    refuse_bad_place(folder)
    found = follow(study)
    save_analysis(found, folder)
    show_analysis(Console(), found, folder)
