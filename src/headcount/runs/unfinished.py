"""The folder of a run that is not finished: what `--resume` goes on from."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from headcount.errors import HeadcountError

UNFINISHED = ".unfinished"  # the ending of such a folder's name
_SETTINGS = "settings.json"


def unfinished_folder(output: Path, settings: dict[str, Any], resume: bool) -> Path:
    """The folder beside the output where the run keeps its checkpoints until it is done.

    Args:
        output: where the result goes; it must not exist.
        settings: of the run; a run goes on only with the settings it began with.
        resume: go on with what is there.
    """
    if output.exists():
        raise HeadcountError(f"{output} exists already; give a new folder for the output")
    if not output.absolute().parent.is_dir():
        raise HeadcountError(f"{output} cannot be written: {output.parent} is not a folder")
    folder = output.with_name(f"{output.name}{UNFINISHED}")
    file = folder / _SETTINGS
    settings = json.loads(json.dumps(settings))
    if file.is_file():
        if not resume:
            raise HeadcountError(
                f"{folder} holds a run that was stopped; add --resume to go on, or delete it"
            )
        _refuse_other_settings(folder, json.loads(file.read_text(encoding="utf-8")), settings)
        return folder
    try:
        folder.mkdir(exist_ok=True)
        file.write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise HeadcountError(f"{folder} cannot be written: {error.strerror or error}") from error
    return folder


def _refuse_other_settings(folder: Path, begun: dict[str, Any], now: dict[str, Any]) -> None:
    for key in sorted({*begun, *now}):
        before, after = begun.get(key), now.get(key)
        if before == after:
            continue
        if isinstance(before, dict) and isinstance(after, dict):
            _refuse_other_settings(folder, before, after)
        raise HeadcountError(
            f"{folder} was begun with {key} {before}, but now it is {after}; give the same "
            "settings to go on, or delete the folder to begin anew"
        )


def discard(folder: Path) -> None:
    """Remove the folder of a run that is finished."""
    shutil.rmtree(folder, ignore_errors=True)
