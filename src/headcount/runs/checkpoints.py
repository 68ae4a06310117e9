"""Checkpoints of a training: which one is the last, and whether it is still what was written."""

from __future__ import annotations

import json
import shutil
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from accelerate import PartialState
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from headcount.atomic import write_text
from headcount.errors import HeadcountError

STATE = "trainer_state.json"  # what `Trainer` writes last into a checkpoint
_MANIFEST = "files.json"  # what a checkpoint consists of, and what it must still be


def last_checkpoint(folder: Path) -> Path | None:
    """The last complete checkpoint: one that has the state, which `Trainer` writes last."""
    found = [place for place in _checkpoints(folder) if _is_whole(place / STATE)]
    return max(found, key=lambda place: int(place.name.partition("-")[2]), default=None)


def _checkpoints(folder: Path) -> list[Path]:
    """What `Trainer` wrote; a folder that somebody called `checkpoint-best` is theirs."""
    return [place for place in folder.glob("checkpoint-*") if place.name[11:].isdecimal()]


def _is_whole(state: Path) -> bool:
    try:
        TrainerState.load_from_json(str(state))
    except (OSError, ValueError, TypeError, RecursionError):  # a kill came before it was whole
        return False
    return True


def discard_broken(folder: Path) -> None:
    """Remove incomplete checkpoints: `Trainer` deletes old ones by number, not by content."""
    for place in _checkpoints(folder):
        if not _is_whole(place / STATE):
            shutil.rmtree(place)


def is_over(checkpoint: Path) -> bool:
    """Whether a checkpoint is of the end of its training."""
    state = TrainerState.load_from_json(str(checkpoint / STATE))
    return bool(state.global_step >= state.max_steps)


class Manifests(TrainerCallback):
    """Notes with every checkpoint which files it has, their sizes and their check sums."""

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Write the list beside the files, once every process has written its own."""
        PartialState().wait_for_everyone()
        if state.is_world_process_zero:
            folder = Path(str(args.output_dir)) / f"checkpoint-{state.global_step}"
            write_text(folder / _MANIFEST, json.dumps(_contents(folder), indent=1) + "\n")


def _contents(folder: Path) -> dict[str, list[int]]:
    """Size and check sum of each file in a folder, by its path there."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        path.relative_to(folder).as_posix(): [path.stat().st_size, _check_sum(path)]
        for path in files
        if path.name != _MANIFEST
    }


def _check_sum(path: Path) -> int:
    total = 0
    with path.open("rb") as file:
        while part := file.read(1 << 20):
            total = zlib.crc32(part, total)
    return total


def refuse_damaged(checkpoint: Path) -> None:
    """Refuse a checkpoint that is not what was written: it would give another result.

    One without a list of its files is taken as it is: it was killed before the list was written.
    """
    file = checkpoint / _MANIFEST
    if not file.is_file():
        return
    try:
        expected = dict(json.loads(file.read_text(encoding="utf-8")))
        found = _contents(checkpoint)
    except (OSError, ValueError, TypeError) as error:
        raise damaged(checkpoint, f"{_MANIFEST} cannot be read ({error})") from error
    for name in sorted(expected):
        if name not in found:
            raise damaged(checkpoint, f"{name} is missing")
        if found[name] != expected[name]:
            raise damaged(checkpoint, f"{name} has changed")


def damaged(checkpoint: Path, why: object) -> HeadcountError:
    """What to say of a checkpoint that is not what was written."""
    return HeadcountError(
        f"the checkpoint {checkpoint} is damaged: {why}; delete it, and go on with --resume"
    )


@contextmanager
def reading(checkpoint: Path) -> Iterator[None]:
    """Say of whatever fails while a checkpoint is read that it is damaged."""
    try:
        yield
    except HeadcountError:
        raise
    except Exception as error:
        raise damaged(checkpoint, error) from error
