"""`headcount export`: a model, pruned or not, for other programs."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import Console

from headcount.cli import options
from headcount.cli.help import OUTPUT, WHAT, option
from headcount.cli.options import Given, with_data
from headcount.cli.show import show_rows
from headcount.errors import HeadcountError

if TYPE_CHECKING:
    from headcount.deploy.cost import Cost

LIST = "list"  # what --to is taken for without a value
_TIMED = ("onnx", "torch")  # targets whose metric and speed are measured here


@with_data(without=("limit_train",))
def export(
    model: options.Model,
    given: Given,
    to: Annotated[
        str | None,
        option(
            WHAT,
            "FORM",
            "plain, remote-code, gguf, mlx, onnx or torch. Without a value, list which of them "
            "can hold this model.",
        ),
    ] = None,
    output: Annotated[Path | None, option(OUTPUT, "FOLDER", "A new folder for the export.")] = None,
    precision: Annotated[
        str | None,
        option(
            WHAT,
            "TYPE",
            "Of gguf: f16 (if none is given), f32 or q8_0. Of onnx: int8, to write graphs of 8-bit "
            "integers too.",
        ),
    ] = None,
    push_to_hub: options.PushToHub = None,
    private: options.Private = False,
    as_json: options.AsJson = False,
) -> None:
    """Write a model for programs that lack headcount, and check it there.

    With data and a task, it also compares metric, size and speed of ONNX graphs with the model's.

    Examples:
        # What can hold this model?
        headcount export small --to
        # A file for llama.cpp
        headcount export smaller --to gguf --precision q8_0 --output served
    """
    from headcount.atomic import new_folder
    from headcount.deploy.targets import fill, find_target, write_record
    from headcount.loading.folder import load_model

    console = Console(stderr=as_json)
    if to in (None, LIST) and output is None:
        _show_offers(console, load_model(model), model, as_json)
        return
    if to in (None, LIST) or output is None:
        missing = "--output, a new folder" if to not in (None, LIST) else "--to, one of its targets"
        raise HeadcountError(
            f"an export needs {missing}; headcount export {model} --to lists the targets"
        )
    target = find_target(str(to), precision)
    if push_to_hub is not None:
        options.refuse_push(push_to_hub)
    evaluated = options.names_data(given)
    if evaluated and target.name not in _TIMED:
        raise HeadcountError(
            f"--to {target.name} is not evaluated here; leave out --task and --data, and give the "
            "folder that it writes to headcount evaluate"
        )
    found: list[Cost] = []
    metric = ""
    with new_folder(output) as folder:
        if evaluated:
            from headcount.deploy.cost import costs
            from headcount.runs.evaluate import open_trained
            from headcount.runs.progress import Silent

            settings = options.run_settings({**given, "model": model})
            with tempfile.TemporaryDirectory() as scratch:
                run, loaded = open_trained(settings, Path(scratch), Silent())
            record = fill(folder, loaded, model, target, precision)
            found, metric = (
                costs(settings, run.task, run.processor, loaded, folder, record),
                run.task.metric,
            )
            record["evaluation"] = [cost.to_dict() for cost in found]
            write_record(folder, record)
        else:
            record = fill(folder, load_model(model), model, target, precision)
    if as_json:
        print(json.dumps(record, indent=2))
    else:
        _show_files(console, str(output), record)
    if found and not as_json:
        _show_costs(console, metric, found)
    if push_to_hub is not None:
        options.push(console, output, push_to_hub, private)


def _show_offers(console: Console, loaded: Any, model: str, as_json: bool) -> None:
    from headcount.deploy.targets import offers

    found = list(offers(loaded, model))
    if as_json:
        made = {o.target.name: {"holds": o.holds, "how": o.how} for o in found}
        print(json.dumps(made, indent=2))
        return
    rows = [(o.target.name, "yes" if o.holds else "no", o.target.runs_in, o.how) for o in found]
    show_rows(console, model, ("holds it", "runs in", "how, or why not"), rows, words=True)


def _show_files(console: Console, output: str, record: dict[str, Any]) -> None:
    if "graphs" in record:
        files = [
            (entry["file"], _size(entry["bytes"]), f"{entry['difference']:.1e}")
            for graph in record["graphs"].values()
            for entry in (graph, *([graph["int8"]] if "int8" in graph else []))
        ]
        show_rows(console, output, ("size", "difference from the model"), files)
        return
    from headcount.deploy.auto_class import FOLDER

    lines = [f"{output}: {record['why']}"]
    if record.get("repeated_key_value_heads"):
        lines.append(
            f"{record['repeated_key_value_heads']} key-value heads are copies of others, so that "
            "all serve equally many queries; --unit group keeps whole groups and needs none"
        )
    if record.get("difference") is not None:
        line = f"its outputs differ from the model's by at most {record['difference']:.1e}"
        if "difference_in_f32" in record:
            line += f", in float32 by {record['difference_in_f32']:.1e}: the rest is rounding"
        lines.append(line)
    load = record.get("load", "").replace(FOLDER, output)
    for line in (*lines, record.get("checked"), record.get("greedy"), load):
        if line:
            console.print(line, highlight=False, markup=False, soft_wrap=True)


def _show_costs(console: Console, metric: str, found: list[Cost]) -> None:
    from headcount.stats.numbers import shown

    splits = list(found[0].metrics)  # none for a task that generates
    columns = [f"{split} {metric}" for split in splits]
    rows = [
        (
            cost.name,
            *(shown(metric, cost.metrics[split][metric]) for split in splits),
            _size(cost.bytes),
            f"{cost.examples_per_second:.0f}",
            f"{cost.difference:.1e}",
        )
        for cost in found
    ]
    show_rows(console, "evaluation", (*columns, "size", "examples/s", "difference"), rows)


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB"
