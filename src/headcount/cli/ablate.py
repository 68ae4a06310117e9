"""`headcount ablate`: what heads are worth, by closing them (Michel, Levy and Neubig 2019)."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from headcount.cli import options
from headcount.cli.help import METHOD, OUTPUT, WHAT, Command, Group, argument, option
from headcount.cli.options import Given, with_data
from headcount.cli.show import Bars, show_analysis

if TYPE_CHECKING:
    from headcount.analysis.base import Analysis

ABOUT = """Close heads of a fine-tuned model and see what it costs.

Nothing is trained or cut.

Examples:
    # What each head is worth, alone
    headcount ablate one my-model --task mnli --data nyu-mll/glue --output ablated
    # What it costs to close more and more of them
    headcount ablate greedy my-model --task mnli --data nyu-mll/glue --output greedy
"""
ablate = typer.Typer(name="ablate", help=ABOUT, no_args_is_help=True, cls=Group)

_MOST_ROWS, _MOST_COLUMNS = 60, 8  # larger tables are hard to read on a terminal

Output = Annotated[Path, option(OUTPUT, "FOLDER", "A new folder for the result.")]
Alpha = Annotated[float, option(METHOD, "P", "The level of the tests.", min=0.0, max=1.0)]
Step = Annotated[float, option(METHOD, "SHARE", "Close this share of the heads at a time.")]
Sample = Annotated[
    float,
    option(METHOD, "SHARE", "Score heads on this share of the training data.", min=0.0, max=1.0),
]


@ablate.command("one", cls=Command)
@with_data(without=("limit_train",))
def one(
    model: options.Model,
    output: Output,
    given: Given,
    alpha: Alpha = 0.01,
    as_json: options.AsJson = False,
) -> None:
    """Close each head alone, and test whether the change is chance.

    Examples:
        # On the validation data of MNLI
        headcount ablate one my-model --task mnli --data nyu-mll/glue --output ablated
        # On a table of your own
        headcount ablate one my-model --task classification --train reviews.csv
            --evaluate held-out.csv --output ablated
    """
    settings = options.run_settings({**given, "model": model})
    from headcount.analysis.ablation import TaskSubject, ablate_one
    from headcount.analysis.base import refuse_bad_place

    refuse_bad_place(output)
    console = Console(stderr=as_json)
    with Bars(console) as bars:
        found = ablate_one(TaskSubject(settings, bars), alpha=alpha)
    _tell(console, found, output, as_json)


@ablate.command("all-but-one", cls=Command)
@with_data(without=("limit_train",))
def all_but_one(
    model: options.Model,
    output: Output,
    given: Given,
    alpha: Alpha = 0.01,
    as_json: options.AsJson = False,
) -> None:
    """Close all heads of a block but one.

    The one is chosen on the first evaluation set, and reported on the second.

    Examples:
        # On both validation sets of MNLI
        headcount ablate all-but-one my-model --task mnli --data nyu-mll/glue --output alone
        # On halves of one set, 500 examples in all
        headcount ablate all-but-one my-model --task sst2 --data nyu-mll/glue --limit-eval 500
            --output alone
    """
    settings = options.run_settings({**given, "model": model})
    from headcount.analysis.ablation import TaskSubject, ablate_all_but_one
    from headcount.analysis.base import refuse_bad_place

    refuse_bad_place(output)
    console = Console(stderr=as_json)
    with Bars(console) as bars:
        found = ablate_all_but_one(TaskSubject(settings, bars), alpha)
    _tell(console, found, output, as_json)


@ablate.command("transfer", cls=Command)
@with_data(without=("limit_train",))
def transfer(
    model: options.Model,
    output: Output,
    given: Given,
    other_data: Annotated[
        str | None, option(WHAT, "DATA", "Other data; without it, the second evaluation set.")
    ] = None,
    other_evaluate: Annotated[
        str | None, option(WHAT, "FILE", "A file of the other data to evaluate on.")
    ] = None,
    other_task: Annotated[
        str | None, option(WHAT, "NAME", "The task of the other data, if it is another.")
    ] = None,
    alpha: Alpha = 0.01,
    as_json: options.AsJson = False,
) -> None:
    """Close each head alone on two data sets: are the same heads important?

    Examples:
        # On both validation sets of MNLI
        headcount ablate transfer my-model --task mnli --data nyu-mll/glue --output transfer
        # On reviews of films and of books
        headcount ablate transfer my-model --task classification --train films.csv
            --evaluate films-dev.csv --other-evaluate books-dev.csv --output transfer
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


@ablate.command("greedy", cls=Command)
@with_data()
def greedy(
    model: options.Model,
    output: Output,
    given: Given,
    kind: Annotated[
        list[str] | None,
        option(METHOD, "KIND", "encoder, decoder or cross heads alone; several give a curve each."),
    ] = None,
    step: Step = 0.1,
    ablation: Annotated[
        bool,
        option(METHOD, None, "Leave out the order by what closing each head alone costs."),
    ] = True,
    sample: Sample = 1.0,
    as_json: options.AsJson = False,
) -> None:
    """Close more and more heads, the least important first.

    Examples:
        # A fine-tuned classifier, a tenth of its heads at a time
        headcount ablate greedy my-model --task mnli --data nyu-mll/glue --output greedy
        # A translator, one curve for each kind of heads
        headcount ablate greedy my-translator --task translation --data multi30k --source de
            --target en --kind encoder --kind decoder --kind cross --output greedy
    """
    settings = options.run_settings({**given, "model": model})
    from headcount.analysis.ablation import TaskSubject, ablate_greedy
    from headcount.analysis.base import refuse_bad_place

    refuse_bad_place(output)
    console = Console(stderr=as_json)
    with Bars(console) as bars:
        found = ablate_greedy(TaskSubject(settings, bars, sample), kind or (), step, ablation)
    _tell(console, found, output, as_json)


@ablate.command("checkpoints", cls=Command)
@with_data()
def checkpoints(
    folders: Annotated[
        list[Path], argument("FOLDERS", "Folders of trainings with checkpoints, or model folders.")
    ],
    output: Output,
    given: Given,
    pattern: Annotated[
        str, option(METHOD, "PATTERN", "Names of the checkpoints in the folder of a training.")
    ] = "checkpoint-*",
    step: Step = 0.1,
    sample: Sample = 1.0,
    as_json: options.AsJson = False,
) -> None:
    """Close more and more heads in every checkpoint of a training.

    Examples:
        # All checkpoints of one training
        headcount ablate checkpoints training --task mnli --data nyu-mll/glue --output along
        # Some of them, a fifth of the heads at a time
        headcount ablate checkpoints training --pattern 'checkpoint-*000' --step 0.2 --task mnli
            --data nyu-mll/glue --output along
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
