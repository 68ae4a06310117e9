"""`headcount prune`: from a model and data to a smaller model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import Console

from headcount.cli import options
from headcount.cli.help import METHOD, OUTPUT, RARE, TRAINING, WHAT, argument, option
from headcount.cli.options import Given, with_data
from headcount.cli.show import Bars, show_rows
from headcount.errors import HeadcountError
from headcount.pruners.methods import DEFAULT, METHODS

if TYPE_CHECKING:
    from headcount.deploy.targets import Target
    from headcount.runs.result import RunResult


@with_data()
def prune(
    output: Annotated[Path, option(OUTPUT, "FOLDER", "A new folder for the smaller model.")],
    given: Given,
    model: Annotated[str | None, argument("MODEL", "A model folder or a name on the hub.")] = None,
    keep: Annotated[
        str | None,
        option(
            WHAT,
            "K",
            "Heads to keep: a count, or a fraction below 1. With joint-dsp and pipelined-dsp, "
            "several come from one training: 48,24,12.",
        ),
    ] = None,
    within: Annotated[
        float | None,
        option(
            WHAT,
            "LOSS",
            "Instead of --keep: the fewest heads that lose at most this part of the metric, such "
            "as 0.01. For methods that train nothing.",
        ),
    ] = None,
    parameters: Annotated[
        float | None,
        option(WHAT, "SHARE", "Instead of --keep: this share of parameters, such as 0.9."),
    ] = None,
    cache: Annotated[
        float | None,
        option(WHAT, "SHARE", "Instead of --keep: this share of the key-value cache, such as 0.5."),
    ] = None,
    speed_up: Annotated[
        float | None,
        option(
            WHAT,
            "TIMES",
            "Instead of --keep: this many times as fast, such as 1.2, by the operations of matrix "
            "products.",
        ),
    ] = None,
    method: Annotated[
        str | None,
        option(
            METHOD,
            "NAME",
            f"How to choose the heads; {DEFAULT} if it is not given. One of {', '.join(METHODS)}: "
            "headcount methods explains them.",
        ),
    ] = None,
    setting: Annotated[
        list[str] | None,
        option(
            METHOD,
            "NAME=VALUE",
            "A setting of the method; repeatable. headcount methods NAME lists them.",
        ),
    ] = None,
    base: Annotated[
        Path | None,
        option(
            METHOD,
            "FOLDER",
            "Fine-tune the unpruned model first, and keep it in this folder. A fine-tuned MODEL "
            "needs none.",
        ),
    ] = None,
    even: Annotated[
        bool | None, option(METHOD, None, "Keep the same number of heads in every layer.")
    ] = None,
    unit: Annotated[
        str | None,
        option(
            METHOD,
            "UNIT",
            "What stays or goes together: head, or group (the query heads of one key-value head).",
        ),
    ] = None,
    epochs: Annotated[
        float | None,
        option(
            TRAINING,
            "N",
            "Passes over the training data; 0 for a model that is fine-tuned already.",
        ),
    ] = None,
    learning_rate: Annotated[
        float | None, option(TRAINING, "RATE", "The learning rate of the model.")
    ] = None,
    batch_size: options.BatchSize = None,
    recovery_epochs: Annotated[
        float | None,
        option(TRAINING, "N", "Passes after the cut, for methods that do not train before it."),
    ] = None,
    distil: Annotated[
        float | None,
        option(
            TRAINING,
            "WEIGHT",
            "Learn from the unpruned model too. This is its weight in the loss, such as 0.7; the "
            "labels get the rest.",
        ),
    ] = None,
    warm_start: Annotated[
        bool | None,
        option(TRAINING, None, "Start from the fine-tuned model, with every method."),
    ] = None,
    pruning_epochs: Annotated[
        float | None,
        option(TRAINING, "N", "Passes while a fine-tuned model is pruned, after a warm start."),
    ] = None,
    resume: Annotated[bool, option(OUTPUT, None, "Go on with a run that was stopped.")] = False,
    to: Annotated[
        str | None,
        option(
            OUTPUT,
            "FORMS",
            "Also write forms for other programs, such as plain,gguf, into folders inside the "
            "output. headcount export lists the forms.",
        ),
    ] = None,
    push_to_hub: options.PushToHub = None,
    private: options.Private = False,
    as_json: options.AsJson = False,
    speed: Annotated[
        bool, option(RARE, None, "Do not measure speed beside the unpruned model.")
    ] = True,
    max_steps: Annotated[int | None, option(RARE, "N", "Stop after this many steps.")] = None,
    pruning_learning_rate: Annotated[
        float | None,
        option(RARE, "RATE", "The learning rate once a fine-tuned model is pruned or cut."),
    ] = None,
    labels: Annotated[
        str | None,
        option(
            RARE,
            "none",
            "Score heads without the labels of the data: the model draws labels from its own "
            "answers.",
        ),
    ] = None,
    from_scratch_like: Annotated[
        Path | None,
        option(
            RARE,
            "FOLDER",
            "Train from the first step with the heads that the pruned model in this folder kept.",
        ),
    ] = None,
) -> None:
    """Keep K heads, cut the rest out, and write the smaller model.

    Methods that train fine-tune the model on the way. The smaller model is checked against the
    masked one, and measured beside the unpruned one.

    Examples:
        # Keep 12 heads of BERT for a table of your own
        headcount prune bert-base-uncased --task classification --train reviews.csv
            --evaluate held-out.csv --keep 12 --output small
        # Keep 80 % of a language model's heads without training
        headcount prune HuggingFaceTB/SmolLM2-135M --data texts.jsonl --method surgeon --keep 0.8
            --output smaller
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
