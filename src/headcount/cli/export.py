"""`headcount export`: a model, pruned or not, for other engines."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from headcount.cli import options
from headcount.cli.options import Given, with_data
from headcount.cli.show import show_rows
from headcount.errors import HeadcountError

if TYPE_CHECKING:
    from headcount.deploy.cost import Cost


@with_data(without=("limit_train",))
def export(
    model: options.Model,
    output: Annotated[Path, typer.Option(help="Folder for the export; must not exist.")],
    given: Given,
    format: Annotated[str, typer.Option(help="onnx, or torch for torch.export.")] = "onnx",
    quantise: Annotated[
        str | None, typer.Option(help="int8: also write ONNX graphs of 8-bit integers.")
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Write a model as ONNX graphs or torch programs, each checked against the model.

    With --task and --data, also compare metric, size and speed with the model's.

    Example: headcount export small --output exported --quantise int8
    """
    from headcount.atomic import new_folder
    from headcount.deploy.write import Export, write_export, write_record
    from headcount.loading.folder import load_model

    if quantise not in (None, "int8"):
        raise HeadcountError(f"--quantise is {quantise!r}, expected int8")
    how = Export(format, quantise is not None)  # type: ignore[arg-type]
    console = Console(stderr=as_json)
    evaluated = any(given[name] is not None for name in ("recipe", "task", "data"))
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
            record = write_export(loaded, model, folder, how)
            found, metric = (
                costs(settings, run.task, run.processor, loaded, folder, record),
                run.task.metric,
            )
            record["evaluation"] = [cost.to_dict() for cost in found]
            write_record(folder, record)
        else:
            record = write_export(load_model(model), model, folder, how)
    if as_json:
        print(json.dumps(record, indent=2))
        return
    _show_files(console, str(output), record)
    if found:
        _show_costs(console, metric, found)


def _show_files(console: Console, output: str, record: dict[str, Any]) -> None:
    files = [
        (entry["file"], _size(entry["bytes"]), f"{entry['difference']:.1e}")
        for graph in record["graphs"].values()
        for entry in (graph, *([graph["int8"]] if "int8" in graph else []))
    ]
    show_rows(console, output, ("size", "difference from the model"), files)


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
