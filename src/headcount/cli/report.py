"""`headcount report`: the tables, figures and page of a study."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from headcount.cli.show import show_rows


def report(
    study: Annotated[Path, typer.Argument(help="The output folder of headcount compare.")],
    method: Annotated[
        list[str] | None,
        typer.Option(help="Tell of this one alone, or of these; may be given several times."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="Folder to write into; without it, report/ of the study.")
    ] = None,
) -> None:
    """Write tables, figures and a page of a study into its folder, and say what is missing.

    Example: headcount report study
    """
    console = Console()
    from headcount.report.page.page import FILE as PAGE
    from headcount.report.table_text import aside, to_terminal
    from headcount.report.tables import label, legend
    from headcount.report.write import write_report

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
    console.print(
        f"{len(done.written)} files are in {done.folder}; open {PAGE} in a browser",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )
