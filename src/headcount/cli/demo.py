"""`headcount demo`: find, gate, cut, save and reload on a real encoder, offline."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from headcount.demo import run_demo


def demo(
    keep: Annotated[int, typer.Option(help="How many of the 72 heads to keep.")] = 12,
    seed: Annotated[int, typer.Option(help="Seed of the random choice of heads.")] = 0,
) -> None:
    """Cut a real pretrained encoder down to a few heads and show that nothing else changed.

    Example: headcount demo --keep 6
    """
    console = Console()
    with console.status("cutting a 72-head encoder"):
        result = run_demo(keep, seed)
    table = Table(title=result.title, title_justify="left")
    table.add_column("")
    for column in ("before", "after", "ratio"):
        table.add_column(column, justify="right")
    for row in result.rows:
        table.add_row(row.what, row.before, row.after, row.ratio)
    console.print(table)
    for line in result.checks:
        console.print(line, markup=False, highlight=False)
