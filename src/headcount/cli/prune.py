"""`headcount prune`: from a model and data to a smaller model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from headcount.cli import options
from headcount.cli.options import Given, with_data
from headcount.cli.show import Bars, show_rows
from headcount.errors import HeadcountError
from headcount.pruners.methods import DEFAULT, METHODS

if TYPE_CHECKING:
    from headcount.deploy.targets import Target
    from headcount.runs.result import RunResult


@with_data()
def prune(
    output: Annotated[Path, typer.Option(help="Folder for the result; must not exist.")],
    given: Given,
    model: Annotated[
        str | None, typer.Argument(help="A model folder or a name on the hub.")
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(
            help=f"One of {', '.join(METHODS)}; {DEFAULT} if none is given. "
            "headcount methods says what each does."
        ),
    ] = None,
    keep: Annotated[
        str | None,
        typer.Option(
            help="Heads to keep: a count, or a fraction below 1. Several, as 48,24,12, come from "
            "one training with joint-dsp or pipelined-dsp, each in its own folder in the output."
        ),
    ] = None,
    cache: Annotated[
        float | None,
        typer.Option(
            help="Instead of --keep: the share of the key-value cache to keep, as 0.5. Models with "
            "grouped queries then lose whole groups."
        ),
    ] = None,
    parameters: Annotated[
        float | None,
        typer.Option(
            help="Instead of --keep: the share of the model's parameters to keep, as 0.9."
        ),
    ] = None,
    speed_up: Annotated[
        float | None,
        typer.Option(
            help="Instead of --keep: times as fast, as 1.2, by the operations of matrix products "
            "in a forward pass over a batch of the task."
        ),
    ] = None,
    within: Annotated[
        float | None,
        typer.Option(
            help="Instead of --keep: the part of the metric that may be lost. 0.01 finds the "
            "fewest heads that keep 99 % of it, with a method that trains nothing."
        ),
    ] = None,
    even: Annotated[
        bool | None,
        typer.Option(help="Keep the same number of heads in every layer; which ones is free."),
    ] = None,
    unit: Annotated[
        str | None,
        typer.Option(
            help="What goes or stays together: head, or group, the query heads that share a "
            "key-value head, so that the cache shrinks too."
        ),
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(
            help="none scores heads without the labels of the data: the model draws labels from "
            "its own answers. For methods that score."
        ),
    ] = None,
    from_scratch_like: Annotated[
        Path | None,
        typer.Option(
            help="Train with the heads that the pruned model in this folder kept, from the first "
            "step on (Voita et al., Table 2)."
        ),
    ] = None,
    base: Annotated[
        Path | None,
        typer.Option(
            help="Folder in which headcount fine-tunes the unpruned model, and keeps it for the "
            "next run. Pipelined methods start from it; the others are compared with it. A model "
            "that is fine-tuned already is given as MODEL, without this."
        ),
    ] = None,
    epochs: Annotated[float | None, typer.Option(help="Passes over the training data.")] = None,
    pruning_epochs: Annotated[
        float | None, typer.Option(help="Passes of a pruning that starts from the base model.")
    ] = None,
    warm_start: Annotated[
        bool | None, typer.Option(help="Start from the fine-tuned model, also when training it.")
    ] = None,
    recovery_epochs: Annotated[
        float | None,
        typer.Option(help="Passes after the cut, of methods that do not train before it."),
    ] = None,
    distil: Annotated[
        float | None,
        typer.Option(
            help="Weight of what the unpruned model says, beside the labels, while pruning. It is "
            "the base model; with handover the model itself, as it was before the cut."
        ),
    ] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Of the model.")] = None,
    pruning_learning_rate: Annotated[
        float | None, typer.Option(help="Of a model that was fine-tuned before.")
    ] = None,
    batch_size: options.BatchSize = None,
    max_steps: Annotated[int | None, typer.Option(help="Stop after so many steps.")] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option(help="Of the method, as name=value; may be given several times."),
    ] = None,
    resume: Annotated[bool, typer.Option(help="Go on with a run that was stopped.")] = False,
    speed: Annotated[bool, typer.Option(help="Measure speed beside the unpruned model.")] = True,
    to: Annotated[
        str | None,
        typer.Option(
            help="Also write forms that other programs load without headcount, as plain,gguf; "
            "each into a folder inside the output. headcount export lists them."
        ),
    ] = None,
    push_to_hub: options.PushToHub = None,
    private: options.Private = False,
    as_json: options.AsJson = False,
) -> None:
    """Fine-tune, choose K heads, cut the rest, check and measure, and write the smaller model.

    Example: headcount prune bert-base-uncased --task mnli --data DIR --keep 12 --output small
    """
    given = {**given, **locals()}
    if from_scratch_like is not None:
        options.fix_layout(given, from_scratch_like)
    options.add_layout(given)
    if keep is not None:
        given["keep"] = options.keep_counts(keep)
    settings = options.run_settings(given)
    options.refuse_wrong_setting(settings, given.get("recipe"))
    several = isinstance(settings.keep, tuple)
    targets: tuple[Target, ...] = ()
    if to is not None:
        from headcount.deploy.beside import targets_named

        targets = targets_named(to)
    if push_to_hub is not None:
        _refuse_push(push_to_hub, several)
    from headcount.runs.prune import prune as run
    from headcount.runs.prune import prune_many

    console = Console(stderr=as_json)
    how: Any = {"base": base, "resume": resume, "speed": speed}
    results: list[RunResult]
    with Bars(console) as bars:
        if several:
            results = list(prune_many(settings, output, progress=bars, **how).values())
        else:
            results = [run(settings, output, hub_name=push_to_hub, progress=bars, **how)]
    if as_json:
        found = [result.to_dict() for result in results]
        print(json.dumps(found if several else found[0], indent=2))
    else:
        _show_all(console, settings.method, results, output)
    if targets:
        _export(console, output, settings.keep, targets)
    if push_to_hub is not None:
        options.push(console, output, push_to_hub, private)


def _refuse_push(name: str, several: bool) -> None:
    """Refuse now what would be refused after hours of training."""
    if several:
        raise HeadcountError(
            f"--push-to-hub has one name, {name}, but --keep has several K; give one K, or upload "
            "the folders afterwards with: hf upload"
        )
    options.refuse_push(name)


def _export(console: Console, output: Path, keep: Any, targets: tuple[Target, ...]) -> None:
    """Write other forms of the models, and say where."""
    from headcount.deploy.beside import export_beside

    if not options.is_first_process():
        return
    folders = [output / f"keep-{one}" for one in keep] if isinstance(keep, tuple) else [output]
    for folder in folders:
        for name, record in export_beside(folder, targets).items():
            line = f"{folder / name}: {record.get('why', record['target'])}, checked"
            console.print(line, highlight=False, markup=False, soft_wrap=True)


def _show_all(console: Console, method: str, results: list[RunResult], output: Path) -> None:
    for result in results:
        _show(console, method, result)
    what = "the models, their cards, masks," if len(results) > 1 else "the model, its card, mask,"
    line = f"{what} figures and settings are in {output}"
    console.print(line, highlight=False, markup=False, soft_wrap=True)


def _show(console: Console, method: str, result: RunResult) -> None:
    title = f"{method}, {int(result.heads.after)} of {int(result.heads.before)} heads"
    show_rows(console, title, ("before", "after", "ratio"), result.rows())
    checked = f"masked and cut outputs differ by at most {result.difference:.1e}"
    for line in (checked, *result.signatures.values()):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
