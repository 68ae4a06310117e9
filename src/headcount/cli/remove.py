"""`headcount remove`: cut heads out of a saved model and save the smaller one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from headcount.errors import HeadcountError
from headcount.heads.blocks import HeadMap
from headcount.heads.find import find_heads
from headcount.heads.mask import HeadMask
from headcount.loading.folder import copy_companions, load_model, new_folder
from headcount.surgery.remove import remove_heads


def remove(
    model: Annotated[str, typer.Argument(help="A model folder or a name on the hub.")],
    output: Annotated[Path, typer.Option(help="Folder for the smaller model; must not exist.")],
    mask: Annotated[Path | None, typer.Option(help="A mask file: the heads to keep.")] = None,
    heads: Annotated[str | None, typer.Option(help="The heads to remove: encoder.3.7,…")] = None,
) -> None:
    """Cut heads out of a model and save the smaller one.

    Example: headcount remove bert-base-uncased --heads encoder.3.7,encoder.0.1 --output small
    """
    if (mask is None) == (heads is None):
        raise HeadcountError("give either --mask with the heads to keep or --heads to remove")
    if output.exists():
        raise HeadcountError(f"{output} exists already; give a new folder for the output")
    from_file = HeadMask.load(mask) if mask is not None else None
    loaded = load_model(model)
    kept = _without(find_heads(loaded), heads or "") if from_file is None else from_file
    removal = remove_heads(loaded, kept)
    with new_folder(output) as folder:
        loaded.save_pretrained(folder)
        kept.save(folder / "mask.json")
        copy_companions(model, folder)
    share = 1 - removal.parameters_after / removal.parameters_before
    Console().print(
        f"removed {len(removal.removed)} heads, kept {len(kept)}: "
        f"{removal.parameters_before:,} → {removal.parameters_after:,} parameters "
        f"(−{share:.1%}), saved in {output}",
        highlight=False,
        markup=False,
    )


def _without(found: HeadMap, names: str) -> HeadMask:
    removed = HeadMask.from_names(found, (name.strip() for name in names.split(",")))
    gone = removed - HeadMask.all(found)
    if len(gone):
        raise HeadcountError(f"the head {gone.names[0]} was removed from this model before")
    return HeadMask.all(found) - removed
