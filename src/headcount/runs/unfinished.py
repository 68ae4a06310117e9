"""The folder beside an output where a run keeps its checkpoints until it is done.

It belongs to one run: it has the settings and a digest of the data that the run began with. One
process holds it at a time. A folder that is not ours is never adopted and never deleted.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from accelerate import PartialState
from filelock import FileLock, Timeout

from headcount.atomic import new_folder, sweep, write_text
from headcount.errors import HeadcountError
from headcount.runs.result import RECOVERY
from headcount.runs.times import ELAPSED, STAGES, noted
from headcount.training.checkpoint_files import HISTORY, TEACHER

UNFINISHED = ".unfinished"  # ends the name of an unfinished run's folder
SETTINGS = "settings.json"  # in the folder of a run, finished or not
DATA = "data.json"  # a digest of the data that a run read
_LOCK = "lock"  # held by the process that does the run
# Everything that a run puts into its unfinished folder. Other things there are the user's.
_OURS = (
    SETTINGS, DATA, ELAPSED, STAGES, _LOCK, TEACHER, HISTORY, "checkpoint-[0-9]*",
    f"{RECOVERY}-[0-9]*", ".*.tmp",
)  # fmt: skip


def unfinished(output: Path) -> Path:
    """The folder beside the output where a run keeps its checkpoints until it is done."""
    return output.with_name(f"{output.name}{UNFINISHED}")


@contextmanager
def unfinished_run(
    output: Path, settings: dict[str, Any], data: str, resume: bool
) -> Iterator[Path]:
    """Hold the folder of an unfinished run, and remove it when the block ends without an error.

    A folder that is there must be of the same run; one that is not ours is never touched. Only the
    main process does anything.

    Args:
        output: where the result goes.
        settings: what the run was asked for; it goes on only with the settings it began with.
        data: a digest of the data; it goes on only with the data it began with.
        resume: go on with a run that is there; False refuses it.
    """
    folder, state = unfinished(output), PartialState()
    if not state.is_main_process:
        state.wait_for_everyone()
        yield folder
        state.wait_for_everyone()
        return
    if not output.absolute().parent.is_dir():
        raise HeadcountError(f"{output} cannot be written: {output.parent} is not a folder")
    if not os.path.lexists(folder):
        _begin(folder, settings, data)
    with _alone_in(folder, output):
        _refuse_other_run(folder, settings, data, resume)
        sweep(folder)
        state.wait_for_everyone()
        yield folder
        discard(folder)
    state.wait_for_everyone()


def _begin(folder: Path, settings: dict[str, Any], data: str) -> None:
    try:
        with new_folder(folder) as scratch:
            write_text(scratch / SETTINGS, json.dumps(settings, indent=2) + "\n")
            write_text(scratch / DATA, json.dumps({"digest": data}) + "\n")
    except HeadcountError:
        if not _is_ours(folder):  # else another process was quicker, and holds the lock
            raise


@contextmanager
def _alone_in(folder: Path, output: Path) -> Iterator[None]:
    """Hold the lock of a run; the system frees it when its process dies."""
    if not _is_ours(folder):
        raise HeadcountError(
            f"{folder} is in the way: it is not a run of headcount; move it, or give another "
            "--output"
        )
    lock = FileLock(folder / _LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise HeadcountError(
            f"another process is writing {output}; wait for it, or give another --output"
        ) from None
    try:
        yield
    finally:
        lock.release()


def _is_ours(folder: Path) -> bool:
    """Whether a folder is of a run that was stopped."""
    return not folder.is_symlink() and {"model", "task", "training"} <= {*noted(folder / SETTINGS)}


def _refuse_other_run(folder: Path, settings: dict[str, Any], data: str, resume: bool) -> None:
    """Refuse to go on with another run; one that has no checkpoint yet simply starts again."""
    if _is_bare(folder):
        write_text(folder / SETTINGS, json.dumps(settings, indent=2) + "\n")
        write_text(folder / DATA, json.dumps({"digest": data}) + "\n")
        return
    if not resume:
        raise HeadcountError(
            f"{folder} holds a run that was stopped; add --resume to go on, or delete it"
        )
    refuse_other_settings(folder, settings)
    refuse_other_data(folder, data)


def _is_bare(folder: Path) -> bool:
    """Whether a run ended before its first checkpoint, for example because of a wrong setting."""
    return {path.name for path in folder.iterdir()} <= {SETTINGS, DATA, ELAPSED, _LOCK}


def refuse_other_data(folder: Path, data: str) -> None:
    """Refuse a folder that was made from other data; one of an older version does not say."""
    begun = noted(folder / DATA).get("digest", data)
    if begun != data:
        raise HeadcountError(
            f"the data have changed since {folder} was begun; restore them to go on, or delete "
            "the folder to start again"
        )


def refuse_other_settings(folder: Path, settings: dict[str, Any]) -> None:
    """Refuse a folder whose run, finished or not, has other settings than these."""
    try:
        begun = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise HeadcountError(
            f"{folder} is in the way: it has no readable {SETTINGS}; delete it to start again"
        ) from error
    changed = first_change(begun, json.loads(json.dumps(settings)))
    if changed is not None:
        key, before, after = changed
        raise HeadcountError(
            f"{folder} was begun with {key} {before}, but now it is {after}; give the same "
            "settings to go on, or delete the folder to start again"
        )


def first_change(begun: dict[str, Any], now: dict[str, Any]) -> tuple[str, Any, Any] | None:
    """The first setting that differs, with its old and its new value; "unsaid" for None.

    A setting that is missing on one side may be None or an empty list on the other: settings that a
    later version adds do nothing then.
    """
    for key in sorted({*begun, *now}):
        before, after = begun.get(key), now.get(key)
        if not (key in begun and key in now) and before in (None, []) and after in (None, []):
            continue
        if isinstance(before, dict) and isinstance(after, dict):
            inside = first_change(before, after)
            if inside is not None:
                return inside
        elif before != after:
            return key, _said(before), _said(after)
    return None


def _said(value: Any) -> Any:
    return "unsaid" if value is None else value


def discard(folder: Path) -> None:
    """Remove the folder of a run that is finished; what is not ours in it stays, and so does it."""
    if not _is_ours(folder):
        return
    for pattern in _OURS:
        for entry in folder.glob(pattern):
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink(missing_ok=True)
    with suppress(OSError):  # something else is in it
        folder.rmdir()
