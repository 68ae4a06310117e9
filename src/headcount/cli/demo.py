"""`headcount demo`: fine-tune, prune, cut and time a real encoder, offline."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from headcount.cli.show import Bars, show_rows


def demo(
    output: Annotated[Path, typer.Option(help="Folder for models, data and the figure.")] = Path(
        "headcount-demo"
    ),
    seed: Annotated[int, typer.Option(help="Of everything that is drawn.")] = 0,
) -> None:
    """Prune a real 72-head encoder to 12 and to 6 heads, and show what it costs and gains.

    Example: headcount demo
    """
    from headcount.demo.run import run_demo

    console = Console()
    with Bars(console) as bars:
        result = run_demo(output, seed=seed, progress=bars)
    columns = ("heads", "accuracy", "of unpruned", "parameters", "examples/s")
    show_rows(console, result.title, columns, result.rows())
    largest = max(run.difference for run in result.runs.values())
    for line in (
        f"masked and cut outputs differ by at most {largest:.1e}",
        f"the picture: {result.figure}",
        f"the models, each with its card, mask and figures: {output}/handover-12, …",
    ):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
