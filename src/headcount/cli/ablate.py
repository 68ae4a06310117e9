"""`headcount ablate`: what heads are worth, by closing them (Michel, Levy and Neubig 2019)."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from headcount.cli import options
from headcount.cli.options import Given, with_data
from headcount.cli.show import Bars, show_analysis

if TYPE_CHECKING:
    from headcount.analysis.base import Analysis

ablate = typer.Typer(
    name="ablate",
    help="Close heads of a fine-tuned model and see what it costs; nothing is trained or cut.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

_MOST_ROWS, _MOST_COLUMNS = 60, 8  # larger tables are hard to read on a terminal

Output = Annotated[Path, typer.Option(help="Folder for the result; must not exist.")]
Alpha = Annotated[float, typer.Option(help="Level of the tests.", min=0.0, max=1.0)]
Step = Annotated[float, typer.Option(help="Share of the heads closed between two points.")]
Sample = Annotated[
    float, typer.Option(help="Share of the training data to score heads on.", min=0.0, max=1.0)
]


@ablate.command("one")
@with_data(without=("limit_train",))
def one(
    model: options.Model,
    output: Output,
    given: Given,
    alpha: Alpha = 0.01,
    as_json: options.AsJson = False,
) -> None:
    """Close each head alone: the change of the metric, and whether it is more than chance.

    Example: headcount ablate one model --task mnli --data DIR --output ablated
    """
    settings = options.run_settings({**given, "model": model})
    from headcount.analysis.ablation import TaskSubject, ablate_one
    from headcount.analysis.base import refuse_bad_place

    refuse_bad_place(output)
    console = Console(stderr=as_json)
    with Bars(console) as bars:
        found = ablate_one(TaskSubject(settings, bars), alpha=alpha)
    _tell(console, found, output, as_json)


@ablate.command("all-but-one")
@with_data(without=("limit_train",))
def all_but_one(
    model: options.Model,
    output: Output,
    given: Given,
    alpha: Alpha = 0.01,
    as_json: options.AsJson = False,
) -> None:
    """Close all heads of a block but one, chosen on the first set and reported on the second.

    Example: headcount ablate all-but-one model --task mnli --data DIR --output alone
    """
    settings = options.run_settings({**given, "model": model})
    from headcount.analysis.ablation import TaskSubject, ablate_all_but_one
    from headcount.analysis.base import refuse_bad_place

    refuse_bad_place(output)
    console = Console(stderr=as_json)
    with Bars(console) as bars:
        found = ablate_all_but_one(TaskSubject(settings, bars), alpha)
    _tell(console, found, output, as_json)


@ablate.command("transfer")
@with_data(without=("limit_train",))
def transfer(
    model: options.Model,
    output: Output,
    given: Given,
    other_task: Annotated[
        str | None, typer.Option(help="Task of the other data; without it, the same.")
    ] = None,
    other_data: Annotated[
        str | None, typer.Option(help="Other data; without it, the second evaluation set.")
    ] = None,
    other_evaluate: Annotated[
        str | None, typer.Option(help="The evaluation file of the other data.")
    ] = None,
    alpha: Alpha = 0.01,
    as_json: options.AsJson = False,
) -> None:
    """Close each head alone on two data sets: are the same heads important?

    Example: headcount ablate transfer model --task mnli --data DIR --output transfer
    """
    settings = options.run_settings({**given, "model": model})
    from headcount.analysis.ablation import TaskSubject, ablate_transfer
    from headcount.analysis.ablation.task_subject import refuse_other_labels
    from headcount.analysis.base import refuse_bad_place

    refuse_bad_place(output)
    console = Console(stderr=as_json)
    with Bars(console) as bars:
        second = None
        if other_task or other_data or other_evaluate:
            files = (other_evaluate,) if other_evaluate else ()
            train = None if other_data else settings.examples.train
            other = replace(
                settings,
                task=other_task or settings.task,
                data=other_data or settings.data,
                examples=replace(settings.examples, train=train, evaluate=files),
            )
            refuse_other_labels(settings, other)
            second = TaskSubject(other, bars)
        found = ablate_transfer(TaskSubject(settings, bars), second, alpha)
    _tell(console, found, output, as_json)


@ablate.command("greedy")
@with_data()
def greedy(
    model: options.Model,
    output: Output,
    given: Given,
    kind: Annotated[
        list[str] | None,
        typer.Option(help="Only encoder, decoder or cross heads; several give a curve each."),
    ] = None,
    step: Step = 0.1,
    ablation: Annotated[
        bool, typer.Option(help="Also in the order of what closing each head alone costs.")
    ] = True,
    sample: Sample = 1.0,
    as_json: options.AsJson = False,
) -> None:
    """Close more and more heads, the least important first.

    Example: headcount ablate greedy model --task mnli --data DIR --output greedy
    """
    settings = options.run_settings({**given, "model": model})
    from headcount.analysis.ablation import TaskSubject, ablate_greedy
    from headcount.analysis.base import refuse_bad_place

    refuse_bad_place(output)
    console = Console(stderr=as_json)
    with Bars(console) as bars:
        found = ablate_greedy(TaskSubject(settings, bars, sample), kind or (), step, ablation)
    _tell(console, found, output, as_json)


@ablate.command("checkpoints")
@with_data()
def checkpoints(
    folders: Annotated[
        list[Path], typer.Argument(help="Folders of trainings with checkpoints, or model folders.")
    ],
    output: Output,
    given: Given,
    pattern: Annotated[
        str, typer.Option(help="Names of the checkpoints in the folder of a training.")
    ] = "checkpoint-*",
    step: Step = 0.1,
    sample: Sample = 1.0,
    as_json: options.AsJson = False,
) -> None:
    """Close more and more heads in every checkpoint of a training.

    Example: headcount ablate checkpoints training --task mnli --data DIR --output along
    """
    from headcount.analysis.ablation import ablate_checkpoints
    from headcount.analysis.ablation.checkpoints import find_checkpoints
    from headcount.analysis.base import refuse_bad_place

    found_folders = find_checkpoints(folders, pattern)
    settings = options.run_settings({**given, "model": str(found_folders[0])})
    refuse_bad_place(output)
    console = Console(stderr=as_json)
    with Bars(console) as bars:
        found = ablate_checkpoints(settings, found_folders, step, sample=sample, progress=bars)
    _tell(console, found, output, as_json)


def _tell(console: Console, found: Analysis, output: Path, as_json: bool) -> None:
    from headcount.analysis.base import FILE, save_analysis

    save_analysis(found, output)
    rows, columns = found.table().shape
    if rows <= _MOST_ROWS and columns <= _MOST_COLUMNS:
        show_analysis(console, found, output)
    else:
        for line in (found.title, found.note, f"table, figures and data are in {output}"):
            console.print(line, highlight=False, markup=False, soft_wrap=True)
    if as_json:
        content = json.loads((output / FILE).read_text(encoding="utf-8"))
        print(json.dumps(content["result"], indent=2))
