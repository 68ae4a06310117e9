"""Make the `Trainer` of a run: its arguments, its progress, and a clean stop."""

from __future__ import annotations

import errno
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import reduce
from datasets import Dataset
from safetensors import SafetensorError
from transformers import (
    PreTrainedModel,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)
from transformers.trainer_callback import PrinterCallback, ProgressCallback

from headcount.errors import HeadcountError, Stopped
from headcount.pruners import Pruner
from headcount.runs.buckets import LengthBuckets
from headcount.runs.elapsed import Elapsed
from headcount.runs.progress import Progress, TrainerProgress
from headcount.runs.settings import TrainingSettings
from headcount.tasks.base import Processor, Task
from headcount.training.averaging import AveragingTrainer
from headcount.training.trainer import PruningTrainer, Seq2SeqPruningTrainer

STATE = "trainer_state.json"
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM)
SAVES = 0.2  # of the training lies between two checkpoints: what a kill may cost

# Names of ours and of `TrainingArguments`, where the task may have a default of its own.
_ARGUMENTS = {
    "learning_rate": "learning_rate",
    "scheduler": "lr_scheduler_type",
    "warmup": "warmup_steps",
    "weight_decay": "weight_decay",
    "max_grad_norm": "max_grad_norm",
    "label_smoothing": "label_smoothing_factor",
    "adam_beta2": "adam_beta2",
}


def training_arguments(
    settings: TrainingSettings, task: Task, folder: Path, epochs: float, seed: int, examples: int
) -> TrainingArguments:
    """The arguments of a training.

    Args:
        settings: what the user chose.
        task: what it leaves to the task.
        folder: for checkpoints.
        epochs: passes over the data.
        seed: of dropout and of the order of the examples.
        examples: how many an epoch has, for a warm-up given as a fraction of the training.
    """
    chosen = {
        name: getattr(settings, ours)
        for ours, name in _ARGUMENTS.items()
        if getattr(settings, ours) is not None
    }
    arguments = {"learning_rate": 5e-5, **task.training, **chosen}
    warmup = arguments.get("warmup_steps", 0)
    if 0 < warmup < 1:
        batch = settings.batch_size * settings.accumulation * PartialState().num_processes
        warmup *= settings.max_steps or epochs * examples / batch
    arguments["warmup_steps"] = round(warmup)
    cls = Seq2SeqTrainingArguments if task.generates else TrainingArguments
    return cls(
        output_dir=str(folder),
        num_train_epochs=epochs,
        max_steps=settings.max_steps or -1,
        per_device_train_batch_size=settings.batch_size,
        per_device_eval_batch_size=settings.eval_batch_size,
        gradient_accumulation_steps=settings.accumulation,
        gradient_checkpointing=settings.gradient_checkpointing,
        bf16=settings.precision == "bf16",
        fp16=settings.precision == "fp16",
        seed=seed,
        data_seed=seed,
        save_steps=SAVES,
        save_total_limit=1,
        logging_steps=settings.log_every,
        report_to=list(settings.report_to) or "none",
        disable_tqdm=True,
        dataloader_pin_memory=False,
        **arguments,
    )


def make_trainer(
    arguments: TrainingArguments,
    model: PreTrainedModel,
    task: Task,
    processor: Processor,
    progress: Progress,
    train: Dataset | None = None,
    pruner: Pruner | None = None,
    **teaching: Any,
) -> Trainer:
    """A trainer for fine-tuning, pruning or evaluating; with a pruner, perhaps with a teacher."""
    options: dict[str, Any] = {
        "model": model,
        "args": arguments,
        "train_dataset": train,
        "data_collator": task.collator(processor, model),
        "processing_class": processor,
        "preprocess_logits_for_metrics": None if task.generates else task.reduce,
        "callbacks": [TrainerProgress(progress)],
    }
    trainer: Trainer
    if pruner is not None:
        trainer = _PRUNING[task.generates](pruner=pruner, **teaching, **options)
    else:
        trainer = _PLAIN[task.generates](**options)
    for talkative in (PrinterCallback, ProgressCallback):
        trainer.remove_callback(talkative)
    return trainer


class _Bucketed(AveragingTrainer):
    """Trains on batches of examples that are about equally long."""

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        data: Any = self.train_dataset  # what is given may have lost the lengths
        size = self.args.train_batch_size * self.args.world_size
        buckets = LengthBuckets(list(data["length"]), size, self.args.seed)
        self.remove_callback(_BeginEpoch)  # a training that cuts heads begins more than once
        self.add_callback(_BeginEpoch(buckets))
        return buckets


class _BeginEpoch(TrainerCallback):
    """Tells the order of examples which epoch it is, also when that is resumed."""

    def __init__(self, buckets: LengthBuckets) -> None:
        self.buckets = buckets

    def on_epoch_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self.buckets.begin_epoch(int((state.epoch or 0.0) + 1e-6))


class _Plain(_Bucketed, Trainer):
    pass


class _PlainSeq2Seq(_Bucketed, Seq2SeqTrainer):
    pass


class _Pruning(_Bucketed, PruningTrainer):
    pass


class _PruningSeq2Seq(_Bucketed, Seq2SeqPruningTrainer):
    pass


# By whether the task generates.
_PLAIN: dict[bool, type[Trainer]] = {False: _Plain, True: _PlainSeq2Seq}
_PRUNING: dict[bool, type[PruningTrainer]] = {False: _Pruning, True: _PruningSeq2Seq}


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
    trainer.add_callback(Elapsed(folder, resumed=last is not None))
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


def _told(error: Exception, folder: Path, last: Path | None) -> HeadcountError:
    """What went wrong with the files of a training, and what to do."""
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


def _last_checkpoint(folder: Path) -> Path | None:
    """The last one that is complete: a trainer writes its state after all else."""
    found = [path.parent for path in folder.glob(f"checkpoint-*/{STATE}") if _is_whole(path)]
    return max(found, key=lambda path: int(path.name.partition("-")[2]), default=None)


def _is_whole(state: Path) -> bool:
    try:
        TrainerState.load_from_json(str(state))
    except (OSError, ValueError, TypeError):  # it broke off before this was written, or meanwhile
        return False
    return True


def _discard_broken(folder: Path) -> None:
    """Remove what a kill left of a checkpoint: `Trainer` keeps the last one by its number."""
    for place in folder.glob("checkpoint-*"):
        if not _is_whole(place / STATE):
            shutil.rmtree(place)


def _is_over(checkpoint: Path) -> bool:
    state = TrainerState.load_from_json(str(checkpoint / STATE))
    return bool(state.global_step >= state.max_steps)


def _take_up(trainer: Trainer, checkpoint: Path) -> None:
    """Have what a finished training left, in which `Trainer` would take one more step."""
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
        if self.requested:  # the second time in earnest
            raise KeyboardInterrupt
        self.requested = True

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl:
        if self._by_all():
            control.should_save = control.should_training_stop = True
        return control

    def _by_all(self) -> bool:
        """Whether any process was asked, so that none waits for one that has stopped."""
        state = PartialState()
        if state.num_processes > 1:
            asked = torch.tensor(float(self.requested), device=state.device)
            self.requested = bool(reduce(asked, "sum") > 0)
        return self.requested
