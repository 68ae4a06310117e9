"""Studies.

`headcount compare`: run a study, or go on with one.
`headcount report`: write the tables, figures and page of a study.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.console import Console

from headcount.cli.help import METHOD, OUTPUT, RARE, argument, option
from headcount.cli.show import Bars, show_rows
from headcount.errors import HeadcountError

if TYPE_CHECKING:
    from headcount.report.finding import Finding


def compare(
    study: Annotated[Path, argument("FILE", "A study file, in YAML.")],
    output: Annotated[
        Path, option(OUTPUT, "FOLDER", "The study's folder; one that exists goes on.")
    ],
    on: Annotated[str | None, option(RARE, "ray", "Send the runs to a Ray cluster.")] = None,
    address: Annotated[
        str | None, option(RARE, "ADDRESS", "The Ray cluster; without it, Ray on this machine.")
    ] = None,
    cpus: Annotated[float, option(RARE, "N", "CPUs of the cluster that a run needs.")] = 1.0,
    gpus: Annotated[float, option(RARE, "N", "GPUs of the cluster that a run needs.")] = 0.0,
) -> None:
    """Run every method, number of heads and seed of a study.

    Several processes may work on one study at a time. The same command goes on with one that was
    stopped.

    Examples:
        # On this computer
        headcount compare study.yaml --output study
        # On a Ray cluster, each run with a GPU of its own
        headcount compare study.yaml --on ray --gpus 1 --output study
    """
    if on not in (None, "ray"):
        raise HeadcountError(f"cannot run on {on}; give --on ray, or nothing for this machine")
    from headcount.report.finding import find_all
    from headcount.stats.numbers import shown
    from headcount.study.plan import StudySettings
    from headcount.study.ray import run_on_ray
    from headcount.study.read import read_study
    from headcount.study.results import load_study, write_results
    from headcount.study.run import run_study

    settings = StudySettings.read(study)
    console = Console()
    with Bars(console) as bars:
        if on == "ray":
            failed = run_on_ray(settings, output, address, cpus, gpus, bars.finished)
        else:
            failed = run_study(settings, output, bars, bars.overall)
    failed = {**write_results(output), **failed}
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
    _show_findings(console, find_all(read_study(output)))


def report(
    study: Annotated[Path, argument("STUDY", "The output folder of headcount compare.")],
    method: Annotated[
        list[str] | None,
        option(METHOD, "NAME", "Report this method alone, or several; repeatable."),
    ] = None,
    output: Annotated[
        Path | None,
        option(OUTPUT, "FOLDER", "A folder to write into; without it, report/ of the study."),
    ] = None,
) -> None:
    """Write the tables, figures and page of a study.

    It also says what is missing.

    Examples:
        # Everything that the study has
        headcount report study
        # Two methods alone, elsewhere
        headcount report study --method handover --method surgeon --output two-methods
    """
    from headcount.report.page.page import FILE as PAGE
    from headcount.report.table_text import aside, label, legend, to_terminal
    from headcount.report.write import write_report

    console = Console()
    done = write_report(study, method or (), output)
    for table in done.tables:
        if table.rows:
            show_rows(console, f"{label(table)}: {table.title}", *to_terminal(table))
            signs = legend(table, "* best of that number of heads")
            console.print(signs, highlight=False, markup=False, style="dim")
        for line in aside(table):
            console.print(line, highlight=False, markup=False)
    for note in (*done.notes, *done.left_out):
        console.print(f"note: {note}", highlight=False, markup=False, soft_wrap=True)
    _show_findings(console, done.findings)
    console.print(
        f"{len(done.written)} files are in {done.folder}; open {PAGE} in a browser",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )


def _show_findings(console: Console, findings: Sequence[Finding]) -> None:
    """Show what a study found; of several models and tasks, say which."""
    for found in findings:
        about = f"{found.about}: " if len(findings) > 1 else ""
        console.print(about + found.says, highlight=False, markup=False, style="bold")
        console.print(found.more, highlight=False, markup=False)
