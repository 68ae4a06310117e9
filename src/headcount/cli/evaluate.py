"""`headcount evaluate`: the metric of a model, pruned or not, or under a mask."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from headcount.cli import options
from headcount.cli.options import Given, with_data
from headcount.cli.show import Bars, show_rows
from headcount.heads.mask import HeadMask


@with_data(without=("limit_train",))
def evaluate(
    model: options.Model,
    given: Given,
    mask: Annotated[
        Path | None, typer.Option(help="Evaluate with only the heads of this mask file.")
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Evaluate a fine-tuned model, pruned or not; with --mask, as if the other heads were gone.

    Example: headcount evaluate small --task mnli --data DIR
    """
    settings = options.run_settings({**given, "model": model})
    kept = None if mask is None else HeadMask.load(mask)
    from headcount.runs.score import evaluate_model
    from headcount.stats.numbers import shown

    console = Console(stderr=as_json)
    with Bars(console) as bars:
        made, results = evaluate_model(settings, kept, bars)
    if as_json:
        print(json.dumps({split: result.metrics for split, result in results.items()}, indent=2))
        return
    metrics = list(next(iter(results.values())).metrics)
    rows = [
        (split, *(shown(name, result.metrics[name]) for name in metrics))
        for split, result in results.items()
    ]
    show_rows(console, model, metrics, rows)
    for split in results:
        console.print(made.signature(split), highlight=False, markup=False, soft_wrap=True)
