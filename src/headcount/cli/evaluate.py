"""What a model and its heads are worth.

`headcount evaluate`: the metrics of a model, pruned or not, or under a mask.
`headcount score`: the importance of every head.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

from rich.console import Console

from headcount.cli import options
from headcount.cli.help import METHOD, OUTPUT, RARE, WHAT, argument, option
from headcount.cli.options import Given, with_data
from headcount.cli.show import Bars, show_rows
from headcount.errors import HeadcountError


@with_data(without=("limit_train",))
def evaluate(
    model: options.Model,
    given: Given,
    mask: Annotated[
        Path | None, option(WHAT, "FILE", "A mask file: evaluate with its heads only.")
    ] = None,
    stride: Annotated[
        int | None,
        option(
            RARE,
            "N",
            "Of a language model: tokens from one window to the next. Without it, windows do not "
            "overlap.",
        ),
    ] = None,
    harness: Annotated[
        str | None,
        option(
            WHAT,
            "NAMES",
            "Tasks of lm-evaluation-harness too, such as piqa,hellaswag; without --data, only "
            "these.",
        ),
    ] = None,
    harness_tasks: Annotated[
        Path | None, option(RARE, "FOLDER", "YAML files of tasks of your own for --harness.")
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Evaluate a fine-tuned model, pruned or not.

    Examples:
        # A pruned classifier, on a table of your own
        headcount evaluate small --task classification --evaluate held-out.csv
        # The perplexity of a language model
        headcount evaluate smaller --data wikitext2.test.tokens.gz
    """
    from headcount.heads.mask import HeadMask

    settings = None
    if harness is None or options.names_data(given):
        own = [] if stride is None else [f"stride={stride}"]
        asked = {**given, "option": [*(given["option"] or ()), *own], "model": model}
        settings = options.run_settings(asked)
    kept = None if mask is None else HeadMask.load(mask)
    tasks = _names(harness)
    folder = None if harness_tasks is None else str(harness_tasks)
    limit, batch_size = given["limit_eval"], given["eval_batch_size"]
    if settings is None:
        _refuse_without_data(limit, batch_size, stride)
    else:  # what a recipe says
        tasks, folder = tasks or settings.harness, folder or settings.harness_tasks
        limit, batch_size = settings.harness_examples, settings.training.eval_batch_size
    if folder and not tasks:
        raise HeadcountError(
            f"--harness-tasks is {folder}, but no task is named; give --harness NAME too"
        )
    from headcount.runs.evaluate import evaluate_model
    from headcount.runs.harness import evaluate_on_harness, harness_signature, refuse_harness

    console = Console(stderr=as_json)
    found: dict[str, dict[str, float]] = {}
    signatures = []
    with Bars(console) as bars:
        refuse_harness(tasks, folder)
        if settings is not None:
            made, results = evaluate_model(settings, kept, bars)
            found |= {split: result.metrics for split, result in results.items()}
            signatures += [
                f"{made.signature(split)}|n:{len(result.predictions)}"
                for split, result in results.items()
            ]
        if tasks:
            scores = evaluate_on_harness(
                model, tasks, kept, bars, folder=folder, limit=limit, batch_size=batch_size
            )
            found |= scores
            signatures += [harness_signature(task, limit) for task in scores]
    if as_json:
        print(json.dumps(found, indent=2))
        return
    _show(console, model, found)
    for line in signatures:
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _refuse_without_data(limit: int | None, batch_size: int | None, stride: int | None) -> None:
    """Refuse options that make no sense for tasks of the harness alone."""
    from headcount.runs.settings import TrainingSettings

    TrainingSettings(limit_eval=limit, eval_batch_size=batch_size)
    if stride is not None:
        raise HeadcountError(
            f"--stride is {stride}, but there is no text to put windows on; give --data, or leave "
            "it out"
        )


def _names(harness: str | None) -> tuple[str, ...]:
    """The tasks that --harness names."""
    if harness is None:
        return ()
    names = tuple(name.strip() for name in harness.split(","))
    if not all(names):
        raise HeadcountError(f"--harness is {harness!r}, expected tasks such as piqa,hellaswag")
    return names


def _show(console: Console, model: str, found: dict[str, dict[str, float]]) -> None:
    """A table with a row for each evaluation set and a column for each metric."""
    from headcount.stats.numbers import shown

    metrics = list(dict.fromkeys(name for scores in found.values() for name in scores))
    rows = [
        (split, *(shown(name, scores[name]) if name in scores else "" for name in metrics))
        for split, scores in found.items()
    ]
    show_rows(console, model, metrics, rows)


@with_data(without=("limit_eval",))
def score(
    model: Annotated[
        str, argument("MODEL", "A fine-tuned model, or the output folder of headcount prune.")
    ],
    output: Annotated[Path, option(OUTPUT, "FOLDER", "A new folder for the result.")],
    given: Given,
    sample: Annotated[
        float,
        option(METHOD, "SHARE", "Score on this share of the training data.", min=0.0, max=1.0),
    ] = 1.0,
    granularity: Annotated[
        str, option(METHOD, "PER", "Absolute gradients per example, token or batch.")
    ] = "example",
    normalise: Annotated[
        bool, option(METHOD, None, "Do not divide by the norm of each layer.")
    ] = True,
) -> None:
    """Write the importance of every head.

    With data it is Michel's score. Without, it is what a run of headcount prune has learned.

    Examples:
        # Michel's score, from a tenth of the training data
        headcount score my-model --task mnli --data nyu-mll/glue --sample 0.1 --output scores
        # What a run has learned
        headcount score small --output learned
    """
    from headcount.atomic import new_folder
    from headcount.heads.mask import MASK_FILE, HeadMask
    from headcount.plots.head_map import draw_head_map
    from headcount.runs.output import IMPORTANCE, load_importances, save_importances

    console = Console()
    if not options.names_data(given):
        method, scores = load_importances(Path(model) / IMPORTANCE)
        mask = HeadMask.load(Path(model) / MASK_FILE)
    else:
        if granularity not in ("example", "token", "batch"):
            raise HeadcountError(
                f"the granularity is {granularity!r}; choose example, token or batch"
            )
        settings = options.run_settings({**given, "model": model})
        from headcount.runs.evaluate import METHOD, score_heads

        method = METHOD
        with Bars(console) as bars:
            mask, scores = score_heads(settings, sample, granularity, normalise, bars)  # type: ignore[arg-type]
    with new_folder(output) as folder:
        save_importances(folder / IMPORTANCE, method, mask, scores)
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
