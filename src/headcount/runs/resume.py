"""Stop a run and go on with it later.

`train` saves checkpoints and goes on from the last one. Until a run is finished, they are in a
folder beside its output, with the settings that it began with. Seconds are kept there too, so that
a resumed run reports the time of all its parts.
"""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
import signal
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import reduce
from filelock import FileLock, Timeout
from safetensors import SafetensorError
from transformers import (
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

from headcount.atomic import new_folder, sweep, write_text
from headcount.errors import HeadcountError, Stopped
from headcount.runs.result import RECOVERY
from headcount.training.checkpoint_files import HISTORY, TEACHER
from headcount.training.trainer import PruningTrainer

UNFINISHED = ".unfinished"  # ends the name of an unfinished run's folder
SETTINGS = "settings.json"  # in the folder of a run, finished or not
STATE = "trainer_state.json"  # what `Trainer` writes last into a checkpoint
DATA = "data.json"  # a digest of the data that a run read
_ELAPSED = "elapsed.json"  # seconds of a training, up to its last checkpoint
_STAGES = "seconds.json"  # seconds of all stages, once the training is over
_LOCK = "lock"  # held by the process that does the run
_MANIFEST = "files.json"  # what a checkpoint consists of, and what it must still be
# Everything that a run puts into its unfinished folder. Other things there are the user's.
_OURS = (
    SETTINGS, DATA, _ELAPSED, _STAGES, _LOCK, TEACHER, HISTORY, "checkpoint-[0-9]*",
    f"{RECOVERY}-[0-9]*", ".*.tmp",
)  # fmt: skip
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM)


def train(trainer: Trainer) -> None:
    """Train, from the last checkpoint if there is one; Ctrl-C saves one first.

    Raises:
        Stopped: after a Ctrl-C.
    """
    folder = Path(str(trainer.args.output_dir))
    last = _last_checkpoint(folder)
    if PartialState().is_main_process:
        _discard_broken(folder)
    PartialState().wait_for_everyone()
    if last is not None:
        refuse_damaged(last)
    trainer.add_callback(_CheckpointTimes(folder, resumed=last is not None))
    trainer.add_callback(_Manifests())
    if last is not None and _is_over(last):
        with _reading(last):
            _take_up(trainer, last)
        return
    stop = _StopOnRequest()
    trainer.add_callback(stop)
    try:
        with stop.listening():
            trainer.train(resume_from_checkpoint=None if last is None else str(last))
    except (OSError, SafetensorError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not _is_about_room(error):
            raise
        raise _told(error, folder, last) from error
    if stop.requested:
        raise Stopped(f"stopped at step {trainer.state.global_step} of {trainer.state.max_steps}")


def _last_checkpoint(folder: Path) -> Path | None:
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


def _discard_broken(folder: Path) -> None:
    """Remove incomplete checkpoints: `Trainer` deletes old ones by number, not by content."""
    for place in _checkpoints(folder):
        if not _is_whole(place / STATE):
            shutil.rmtree(place)


class _Manifests(TrainerCallback):
    """Notes with every checkpoint which files it has, their sizes and their check sums."""

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        PartialState().wait_for_everyone()  # each process writes files of its own
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
        raise _damaged(checkpoint, f"{_MANIFEST} cannot be read ({error})") from error
    for name in sorted(expected):
        if name not in found:
            raise _damaged(checkpoint, f"{name} is missing")
        if found[name] != expected[name]:
            raise _damaged(checkpoint, f"{name} has changed")


def _damaged(checkpoint: Path, why: object) -> HeadcountError:
    return HeadcountError(
        f"the checkpoint {checkpoint} is damaged: {why}; delete it, and go on with --resume"
    )


@contextmanager
def _reading(checkpoint: Path) -> Iterator[None]:
    """Say of whatever fails while a checkpoint is read that it is damaged."""
    try:
        yield
    except HeadcountError:
        raise
    except Exception as error:
        raise _damaged(checkpoint, error) from error


def _is_about_room(error: RuntimeError) -> bool:
    """Whether torch could not write a file: it says so in words of its own."""
    return any(word in str(error) for word in ("PytorchStreamWriter", "inline_container"))


def _is_over(checkpoint: Path) -> bool:
    state = TrainerState.load_from_json(str(checkpoint / STATE))
    return bool(state.global_step >= state.max_steps)


def _take_up(trainer: Trainer, checkpoint: Path) -> None:
    """Load the end of a finished training; `Trainer.train` would take one more step."""
    trainer.state = TrainerState.load_from_json(str(checkpoint / STATE))
    trainer._load_from_checkpoint(str(checkpoint))
    if isinstance(trainer, PruningTrainer):
        trainer.note_selection()


class _StopOnRequest(TrainerCallback):
    """Ends the training at the next step, with a checkpoint, when Ctrl-C is pressed once."""

    def __init__(self) -> None:
        self.requested = False

    @contextmanager
    def listening(self) -> Iterator[None]:
        try:
            before = signal.signal(signal.SIGINT, self._request)
        except ValueError:  # not in the main thread, where no signal arrives
            yield
            return
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _request(self, number: int, frame: Any) -> None:
        if self.requested:  # a second Ctrl-C stops at once
            raise KeyboardInterrupt
        self.requested = True

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl:
        if self._any_requested():
            control.should_save = control.should_training_stop = True
        return control

    def _any_requested(self) -> bool:
        """Whether any process was asked to stop. All stop then, or one would wait for another."""
        state = PartialState()
        if state.num_processes > 1:
            asked = torch.tensor(float(self.requested), device=state.device)
            self.requested = bool(reduce(asked, "sum") > 0)
        return self.requested


def _told(error: Exception, folder: Path, last: Path | None) -> HeadcountError:
    """The error to show when the files of a training cannot be read or written."""
    if isinstance(error, SafetensorError) and "deserializing" in str(error) and last is not None:
        return _damaged(last, error)
    if isinstance(error, OSError) and error.errno not in _NO_ROOM:
        return HeadcountError(
            f"the training in {folder} broke off: {error}; mend that, and go on with --resume"
        )
    return HeadcountError(
        f"a checkpoint in {folder} cannot be written: {error}; make room, and go on with --resume"
    )


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
    if folder.is_symlink() or not (folder / SETTINGS).is_file():
        return False
    try:
        settings = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(settings, dict) and {"model", "task", "training"} <= {*settings}


def _refuse_other_run(folder: Path, settings: dict[str, Any], data: str, resume: bool) -> None:
    """Refuse to go on with another run; one that has no checkpoint yet simply begins anew."""
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
    return {path.name for path in folder.iterdir()} <= {SETTINGS, DATA, _ELAPSED, _LOCK}


def refuse_other_data(folder: Path, data: str) -> None:
    """Refuse a folder that was made from other data; one of an older version does not say."""
    begun = _noted(folder / DATA).get("digest", data)
    if begun != data:
        raise HeadcountError(
            f"the data have changed since {folder} was begun; restore them to go on, or delete "
            "the folder to begin anew"
        )


def refuse_other_settings(folder: Path, settings: dict[str, Any]) -> None:
    """Refuse a folder whose run, finished or not, has other settings than these."""
    try:
        begun = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise HeadcountError(
            f"{folder} is in the way: it has no readable {SETTINGS}; delete it to begin anew"
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

    A missing setting counts as None: settings that a later version adds do nothing when None.
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


class StageTimes:
    """How long the stages of a run took.

    Attributes:
        seconds: by the names of the stages.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def timed(self, stage: str, training: Path | None = None) -> Iterator[None]:
        """Note how long a stage takes.

        Args:
            stage: its name.
            training: the folder of a training in this stage. The time before that training was
                resumed is added.
        """
        started = time.perf_counter()
        yield
        earlier = 0.0 if training is None else earlier_seconds(training)
        self.seconds[stage] = time.perf_counter() - started + earlier

    def keep(self, folder: Path) -> None:
        """Keep the times in a folder, or take those that a run kept there before it was killed."""
        file = folder / _STAGES
        if noted := _seconds(file):
            self.seconds = noted
        else:
            write_text(file, json.dumps(self.seconds) + "\n")


def earlier_seconds(folder: Path) -> float:
    """How long the training in a folder took before it was resumed for the last time."""
    return _seconds(folder / _ELAPSED).get("earlier", 0.0)


class _CheckpointTimes(TrainerCallback):
    """Notes with every checkpoint how long it took to get there.

    Steps that are done twice because of a kill are counted once.
    """

    def __init__(self, folder: Path, resumed: bool) -> None:
        self.file = folder / _ELAPSED
        noted = _seconds(self.file) if resumed else {}
        self.earlier = noted.get("earlier", 0.0) + noted.get("since", 0.0)
        self._started = time.perf_counter()
        if PartialState().is_main_process:
            self._note(0.0)

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if state.is_world_process_zero:
            self._note(time.perf_counter() - self._started)

    def _note(self, since: float) -> None:
        write_text(self.file, json.dumps({"earlier": self.earlier, "since": since}) + "\n")


def _seconds(file: Path) -> dict[str, float]:
    """Seconds that were noted in a file; none if it is damaged: no result depends on them."""
    noted = _noted(file)
    if all(isinstance(value, int | float) and math.isfinite(value) for value in noted.values()):
        return noted
    return {}


def _noted(file: Path) -> dict[str, Any]:
    """What a small file holds; nothing if it is damaged or of another version."""
    try:
        noted = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return noted if isinstance(noted, dict) else {}
