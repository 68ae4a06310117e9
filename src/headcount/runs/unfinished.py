"""The folder of a run that is not finished: what `--resume` goes on from."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from headcount.errors import HeadcountError
from headcount.runs.elapsed import FILE

UNFINISHED = ".unfinished"  # the ending of such a folder's name
_SETTINGS = "settings.json"


def unfinished_folder(output: Path, settings: dict[str, Any], resume: bool) -> Path:
    """The folder beside the output where the run keeps its checkpoints until it is done.

    Args:
        output: where the result goes.
        settings: of the run; a run goes on only with the settings it began with.
        resume: go on with what is there.
    """
    if not output.absolute().parent.is_dir():
        raise HeadcountError(f"{output} cannot be written: {output.parent} is not a folder")
    folder = output.with_name(f"{output.name}{UNFINISHED}")
    file = folder / _SETTINGS
    if file.is_file() and not _is_bare(folder):
        if not resume:
            raise HeadcountError(
                f"{folder} holds a run that was stopped; add --resume to go on, or delete it"
            )
        refuse_other_settings(folder, settings)
        return folder
    try:
        folder.mkdir(exist_ok=True)
        file.write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise HeadcountError(f"{folder} cannot be written: {error.strerror or error}") from error
    return folder


def _is_bare(folder: Path) -> bool:
    """Whether a run ended before it had anything to go on from, as one with a wrong setting does.

    What is there is what every run begins with, not a checkpoint and not a result.
    """
    return {path.name for path in folder.iterdir()} <= {_SETTINGS, FILE}


def refuse_other_settings(folder: Path, settings: dict[str, Any]) -> None:
    """Tell if the run in a folder, finished or not, has other settings.

    Args:
        folder: of the run.
        settings: that it should have.
    """
    try:
        begun = json.loads((folder / _SETTINGS).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise HeadcountError(
            f"{folder} is in the way: it has no readable {_SETTINGS}; delete it to begin anew"
        ) from error
    changed = first_change(begun, json.loads(json.dumps(settings)))
    if changed is not None:
        key, before, after = changed
        raise HeadcountError(
            f"{folder} was begun with {key} {before}, but now it is {after}; give the same "
            "settings to go on, or delete the folder to begin anew"
        )


def first_change(begun: dict[str, Any], now: dict[str, Any]) -> tuple[str, Any, Any] | None:
    """The first setting that differs, with its old and its new value.

    A setting that was not known then is as good as None, which leaves everything as it was.
    """
    for key in sorted({*begun, *now}):
        before, after = begun.get(key), now.get(key)
        if isinstance(before, dict) and isinstance(after, dict):
            inside = first_change(before, after)
            if inside is not None:
                return inside
        elif before != after:
            return key, before, after
    return None


def discard(folder: Path) -> None:
    """Remove the folder of a run that is finished."""
    shutil.rmtree(folder, ignore_errors=True)
