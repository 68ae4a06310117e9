"""`headcount score`: the importance of every head, as JSON and as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from headcount.cli import options
from headcount.cli.options import Given, with_data
from headcount.cli.show import Bars, show_rows
from headcount.errors import HeadcountError
from headcount.heads.mask import HeadMask


@with_data(without=("limit_eval",))
def score(
    model: Annotated[
        str, typer.Argument(help="A fine-tuned model, or the output folder of headcount prune.")
    ],
    output: Annotated[Path, typer.Option(help="Folder for the result; must not exist.")],
    given: Given,
    sample: Annotated[
        float, typer.Option(help="Share of the training data to score on.", min=0.0, max=1.0)
    ] = 1.0,
    granularity: Annotated[
        str, typer.Option(help="Absolute gradients per example, token or batch.")
    ] = "example",
    normalise: Annotated[bool, typer.Option(help="Divide by the norm of each layer.")] = True,
) -> None:
    """Write the importance of every head: Michel's from data, or what a run has learned.

    Example: headcount score model --task mnli --data DIR --output scores
    """
    console = Console()
    from headcount.plots.head_map import draw_head_map
    from headcount.runs import importance

    if all(given[name] is None for name in ("task", "data", "recipe")):
        method, scores = importance.load_importances(Path(model) / importance.FILE)
        mask = HeadMask.load(Path(model) / "mask.json")
    else:
        if granularity not in ("example", "token", "batch"):
            raise HeadcountError(
                f"the granularity is {granularity!r}; choose example, token or batch"
            )
        settings = options.run_settings({**given, "model": model})
        from headcount.runs.score import METHOD, score_heads

        method = METHOD
        with Bars(console) as bars:
            mask, scores = score_heads(settings, sample, granularity, normalise, bars)  # type: ignore[arg-type]
    from headcount.loading.folder import new_folder

    with new_folder(output) as folder:
        importance.save_importances(folder / importance.FILE, method, mask, scores)
        title = f"importance of {mask.born} heads, {method}"
        for ending in ("png", "svg"):
            draw_head_map(mask, scores, title, folder / f"heads.{ending}")
    names = (mask | ~mask).names
    ranked = sorted(
        (i for i in range(mask.born) if scores[i] == scores[i]), key=lambda i: -scores[i]
    )
    rows = [(names[i], f"{scores[i]:.4g}") for i in ranked[:10]]
    show_rows(console, "the most important heads", ("importance",), rows)
    console.print(f"all {mask.born}, and their map, are in {output}", highlight=False, markup=False)
