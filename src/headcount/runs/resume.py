"""Stop a run and go on with it later.

`train` saves checkpoints and goes on from the last one. Until a run is finished, they are in a
folder beside its output, with the settings that it began with. Seconds are kept there too, so that
a resumed run reports the time of all its parts.
"""

from __future__ import annotations

import errno
import json
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import reduce
from safetensors import SafetensorError
from transformers import (
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

from headcount.atomic import write_atomically
from headcount.errors import HeadcountError, Stopped
from headcount.training.trainer import PruningTrainer

UNFINISHED = ".unfinished"  # ends the name of an unfinished run's folder
SETTINGS = "settings.json"  # in the folder of a run, finished or not
STATE = "trainer_state.json"  # what `Trainer` writes last into a checkpoint
_ELAPSED = "elapsed.json"  # seconds of a training, up to its last checkpoint
_STAGES = "seconds.json"  # seconds of all stages, once the training is over
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
    trainer.add_callback(_CheckpointTimes(folder, resumed=last is not None))
    if last is not None and _is_over(last):
        _take_up(trainer, last)
        return
    stop = _StopOnRequest()
    trainer.add_callback(stop)
    try:
        with stop.listening():
            trainer.train(resume_from_checkpoint=None if last is None else str(last))
    except (OSError, SafetensorError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "PytorchStreamWriter" not in str(error):
            raise
        raise _told(error, folder, last) from error
    if stop.requested:
        raise Stopped(f"stopped at step {trainer.state.global_step} of {trainer.state.max_steps}")


def _last_checkpoint(folder: Path) -> Path | None:
    """The last complete checkpoint: one that has the state, which `Trainer` writes last."""
    found = [path.parent for path in folder.glob(f"checkpoint-*/{STATE}") if _is_whole(path)]
    return max(found, key=lambda path: int(path.name.partition("-")[2]), default=None)


def _is_whole(state: Path) -> bool:
    try:
        TrainerState.load_from_json(str(state))
    except (OSError, ValueError, TypeError):  # a kill came before or while it was written
        return False
    return True


def _discard_broken(folder: Path) -> None:
    """Remove incomplete checkpoints: `Trainer` deletes old ones by number, not by content."""
    for place in folder.glob("checkpoint-*"):
        if not _is_whole(place / STATE):
            shutil.rmtree(place)


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
    if isinstance(error, SafetensorError) and "deserializing" in str(error):
        return HeadcountError(
            f"the checkpoint {last} is damaged: {error}; delete it, and go on with --resume"
        )
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


def open_unfinished(output: Path, settings: dict[str, Any], resume: bool) -> None:
    """Make the folder of an unfinished run, or check that the run in it can go on.

    Args:
        output: where the result goes.
        settings: what the run was asked for; it goes on only with the settings it began with.
        resume: go on with a run that is there; False refuses it.
    """
    if not output.absolute().parent.is_dir():
        raise HeadcountError(f"{output} cannot be written: {output.parent} is not a folder")
    folder = unfinished(output)
    file = folder / SETTINGS
    if file.is_file() and not _is_bare(folder):
        if not resume:
            raise HeadcountError(
                f"{folder} holds a run that was stopped; add --resume to go on, or delete it"
            )
        refuse_other_settings(folder, settings)
        return
    try:
        folder.mkdir(exist_ok=True)
        file.write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise HeadcountError(f"{folder} cannot be written: {error.strerror or error}") from error


def _is_bare(folder: Path) -> bool:
    """Whether a run ended before its first checkpoint, for example because of a wrong setting."""
    return {path.name for path in folder.iterdir()} <= {SETTINGS, _ELAPSED}


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
    """Remove the folder of a run that is finished."""
    shutil.rmtree(folder, ignore_errors=True)


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
        if file.is_file():
            self.seconds = json.loads(file.read_text(encoding="utf-8"))
        else:
            text = json.dumps(self.seconds) + "\n"
            write_atomically(file, lambda path: path.write_text(text, encoding="utf-8"))


def earlier_seconds(folder: Path) -> float:
    """How long the training in a folder took before it was resumed for the last time."""
    return _noted(folder / _ELAPSED).get("earlier", 0.0)


class _CheckpointTimes(TrainerCallback):
    """Notes with every checkpoint how long it took to get there.

    Steps that are done twice because of a kill are counted once.
    """

    def __init__(self, folder: Path, resumed: bool) -> None:
        self.file = folder / _ELAPSED
        noted = _noted(self.file) if resumed else {}
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
        text = json.dumps({"earlier": self.earlier, "since": since}) + "\n"
        write_atomically(self.file, lambda path: path.write_text(text, encoding="utf-8"))


def _noted(file: Path) -> dict[str, float]:
    try:
        noted: dict[str, float] = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # another version began the training
        return {}
    return noted
