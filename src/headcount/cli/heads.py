"""`headcount heads`: draw the map of a model's blocks × heads."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text
from torch import nn

from headcount.heads.blocks import AttentionBlock, HeadMap
from headcount.heads.find import find_heads
from headcount.loading.folder import load_model
from headcount.surgery.remove import count_parameters


def heads(
    model: Annotated[str, typer.Argument(help="A model folder or a name on the hub.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")] = False,
) -> None:
    """Draw the map of a model's heads: which are there, which were removed.

    Example: headcount heads bert-base-uncased
    """
    loaded = load_model(model)
    found = find_heads(loaded)
    if as_json:
        print(json.dumps(_as_dict(model, loaded, found), indent=2))
    else:
        _draw(model, loaded, found)


def _block_parameters(model: nn.Module, block: AttentionBlock) -> int:
    """Parameters of the block that belong to heads."""
    home = model.get_submodule(block.path)
    return sum(
        getattr(home.get_submodule(part.path), name).numel()
        for part in block.anatomy.parts
        for name, _ in part.tensors
    )


def _as_dict(name: str, model: nn.Module, found: HeadMap) -> dict[str, Any]:
    return {
        "model": name,
        "class": type(model).__name__,
        "model_type": found.model_type,
        "heads": len(found),
        "born": found.born,
        "parameters": count_parameters(model),
        "blocks": [
            {
                "name": block.name,
                "kind": block.kind,
                "layer": block.layer,
                "path": block.path,
                "heads": list(block.heads),
                "born": block.born,
                "head_size": block.head_size,
                "key_value_heads": block.num_key_value_heads,
                "parameters": _block_parameters(model, block),
            }
            for block in found.blocks
        ],
        "left_alone": [{"path": l.path, "reason": l.reason} for l in found.left_alone],  # noqa: E741
    }


def _draw(name: str, model: nn.Module, found: HeadMap) -> None:
    console = Console()
    console.print(f"{name} ({type(model).__name__})", soft_wrap=True, markup=False, highlight=False)
    table = Table(box=None)
    for column, side in (("block", "left"), ("heads", "left"), ("left", "right")):
        table.add_column(column, justify=side, no_wrap=column != "heads")  # type: ignore[arg-type]
    table.add_column("size", justify="right")
    table.add_column("kv heads", justify="right")
    table.add_column("parameters", justify="right")
    for block in found.blocks:
        table.add_row(
            block.name,
            _row(block),
            f"{block.num_heads}/{block.born}",
            str(block.head_size),
            str(block.num_key_value_heads),
            f"{_block_parameters(model, block):,}",
        )
    console.print(table)
    console.print(
        f"{len(found)} of {found.born} heads in {len(found.blocks)} blocks (■ kept, · removed)\n"
        f"{count_parameters(model):,} parameters in the model"
    )
    for left in found.left_alone:
        console.print(f"left alone: {left.path}: {left.reason}", style="yellow", markup=False)


def _row(block: AttentionBlock) -> Text:
    text = Text()
    for head in range(block.born):
        text.append("■ " if head in block.heads else "· ", "cyan" if head in block.heads else "dim")
    return text
