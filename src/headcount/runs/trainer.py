"""Make the `Trainer` of a run: its arguments, its progress, and a clean stop."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

from accelerate import PartialState
from datasets import Dataset
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
from transformers.trainer_utils import get_last_checkpoint

from headcount.pruners import Pruner
from headcount.runs.progress import Progress, TrainerProgress
from headcount.runs.settings import TrainingSettings
from headcount.tasks.base import Processor, Task
from headcount.training.trainer import PruningTrainer, Seq2SeqPruningTrainer

SAVES = 0.1  # of the training lies between two checkpoints: what a kill may cost

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
    known = {f.name for f in fields(cls)}
    # Batches of examples that are equally long; the option changed its name.
    bucketed: dict[str, Any] = (
        {"train_sampling_strategy": "group_by_length"}
        if "train_sampling_strategy" in known
        else {"group_by_length": True}
    )
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
        length_column_name="length",
        dataloader_pin_memory=False,
        **bucketed,
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
) -> Trainer:
    """A trainer for fine-tuning, pruning or evaluating."""
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
        kind = Seq2SeqPruningTrainer if task.generates else PruningTrainer
        trainer = kind(pruner=pruner, **options)
    else:
        trainer = Seq2SeqTrainer(**options) if task.generates else Trainer(**options)
    for talkative in (PrinterCallback, ProgressCallback):
        trainer.remove_callback(talkative)
    return trainer


class Stopped(KeyboardInterrupt):
    """The user asked to stop, and the training was saved first."""


def train(trainer: Trainer) -> None:
    """Train, from the last checkpoint if there is one; Ctrl-C saves one first.

    Raises:
        Stopped: after a Ctrl-C.
    """
    folder = trainer.args.output_dir
    last = get_last_checkpoint(folder) if folder and Path(folder).is_dir() else None
    stop = _StopOnRequest()
    trainer.add_callback(stop)
    with stop.listening():
        trainer.train(resume_from_checkpoint=last)
    if stop.requested:
        raise Stopped(f"at step {trainer.state.global_step} of {trainer.state.max_steps}")


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
        if self.requested:
            control.should_save = control.should_training_stop = True
        return control
