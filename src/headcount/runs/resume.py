"""Train, stop in the middle, and go on from the last checkpoint to the same result."""

from __future__ import annotations

import errno
import signal
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

from headcount.errors import HeadcountError, Stopped
from headcount.runs.checkpoints import (
    STATE,
    Manifests,
    damaged,
    discard_broken,
    is_over,
    last_checkpoint,
    reading,
    refuse_damaged,
)
from headcount.runs.times import CheckpointTimes
from headcount.training.trainer import PruningTrainer

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM)


def train(trainer: Trainer) -> None:
    """Train, from the last checkpoint if there is one; Ctrl-C saves one first.

    Raises:
        Stopped: after a Ctrl-C.
    """
    folder = Path(str(trainer.args.output_dir))
    last = last_checkpoint(folder)
    if PartialState().is_main_process:
        discard_broken(folder)
    PartialState().wait_for_everyone()
    if last is not None:
        refuse_damaged(last)
    trainer.add_callback(CheckpointTimes(folder, resumed=last is not None))
    trainer.add_callback(Manifests())
    if last is not None and is_over(last):
        with reading(last):
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
        return damaged(last, error)
    if isinstance(error, OSError) and error.errno not in _NO_ROOM:
        return HeadcountError(
            f"the training in {folder} broke off: {error}; mend that, and go on with --resume"
        )
    return HeadcountError(
        f"a checkpoint in {folder} cannot be written: {error}; make room, and go on with --resume"
    )


def _is_about_room(error: RuntimeError) -> bool:
    """Whether torch could not write a file: it says so in words of its own."""
    return any(word in str(error) for word in ("PytorchStreamWriter", "inline_container"))
