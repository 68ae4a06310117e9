"""The heads of a model.

`headcount heads`: draw the map of a model's blocks × heads.
`headcount remove`: cut heads that a mask or a list names.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from headcount.cli import options
from headcount.cli.help import OUTPUT, WHAT, option
from headcount.errors import HeadcountError

if TYPE_CHECKING:
    from torch import nn

    from headcount.heads.blocks import AttentionBlock, HeadMap
    from headcount.heads.mask import HeadMask


def heads(model: options.Model, as_json: options.AsJson = False) -> None:
    """Draw the map of a model's heads: those there, and those removed.

    Examples:
        # A model from the hub
        headcount heads bert-base-uncased
        # A pruned one, for a program to read
        headcount heads small --json
    """
    from headcount.heads.find import find_heads
    from headcount.loading.folder import load_model

    loaded = load_model(model)
    found = find_heads(loaded)
    if as_json:
        print(json.dumps(_as_dict(model, loaded, found), indent=2))
    else:
        _draw(model, loaded, found)


def _as_dict(name: str, model: nn.Module, found: HeadMap) -> dict[str, Any]:
    from headcount.surgery.remove import count_parameters

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
    from headcount.surgery.remove import count_parameters

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
    """A square for each head that is there, a dot for each that was removed."""
    text = Text()
    for head in range(block.born):
        text.append("■ " if head in block.heads else "· ", "cyan" if head in block.heads else "dim")
    return text


def _block_parameters(model: nn.Module, block: AttentionBlock) -> int:
    """How many parameters of the block belong to heads."""
    home = model.get_submodule(block.path)
    return sum(
        getattr(home.get_submodule(part.path), name).numel()
        for part in block.anatomy.parts
        for name, _ in part.tensors
    )


def remove(
    model: options.Model,
    output: Annotated[Path, option(OUTPUT, "FOLDER", "A new folder for the smaller model.")],
    mask: Annotated[Path | None, option(WHAT, "FILE", "A mask file: the heads to keep.")] = None,
    heads: Annotated[
        str | None, option(WHAT, "NAMES", "The heads to remove: encoder.3.7,encoder.0.1.")
    ] = None,
) -> None:
    """Cut heads out of a model, and save the smaller one.

    Examples:
        # Two heads by their names
        headcount remove bert-base-uncased --heads encoder.3.7,encoder.0.1 --output small
        # All heads except those that a run kept
        headcount remove my-model --mask small/mask.json --output cut
    """
    from headcount.atomic import new_folder, refuse_existing
    from headcount.heads.find import find_heads
    from headcount.heads.mask import MASK_FILE, HeadMask
    from headcount.loading.folder import copy_companions, left_out_words, load_model
    from headcount.surgery.remove import remove_heads

    if (mask is None) == (heads is None):
        raise HeadcountError("give either --mask with the heads to keep or --heads to remove")
    refuse_existing(output)
    from_file = HeadMask.load(mask) if mask is not None else None
    loaded = load_model(model)
    kept = _without(find_heads(loaded), heads or "") if from_file is None else from_file
    removal = remove_heads(loaded, kept)
    with new_folder(output) as folder:
        loaded.save_pretrained(folder)
        kept.save(folder / MASK_FILE)
        left_out = copy_companions(model, folder)
    share = 1 - removal.parameters_after / removal.parameters_before
    Console().print(
        f"removed {len(removal.removed)} heads, kept {len(kept)}: "
        f"{removal.parameters_before:,} → {removal.parameters_after:,} parameters "
        f"(−{share:.1%}), saved in {output}",
        highlight=False,
        markup=False,
    )
    if left_out:
        Console(stderr=True).print(left_out_words(model, left_out), markup=False, highlight=False)


def _without(found: HeadMap, names: str) -> HeadMask:
    """The heads of a model except those that are named."""
    from headcount.heads.mask import HeadMask

    removed = HeadMask.from_names(found, (name.strip() for name in names.split(",")))
    gone = removed - HeadMask.all(found)
    if len(gone):
        raise HeadcountError(f"the head {gone.names[0]} was removed from this model before")
    return HeadMask.all(found) - removed
