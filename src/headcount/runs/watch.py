"""How good a model is while its heads are chosen: it is evaluated now and then, as a bystander."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from headcount.runs.evaluate import evaluate
from headcount.runs.progress import Silent
from headcount.tasks.base import Processor, Task
from headcount.training.trainer import PruningTrainer


class Watch(TrainerCallback):
    """Puts the deciding metric of the masked model into the trainer's history.

    Evaluation mode has the mask in place of the gates, so this is the model that a training which
    ended here would give (but for a handover, which would operate at its end). The training goes on
    as if it had not been watched.

    Args:
        trainer: with the pruner.
        task: scores the predictions.
        processor: of the model.
        data: one evaluation set, by its name.
        every: steps between two evaluations; the first and the last step have one too.
    """

    def __init__(
        self,
        trainer: PruningTrainer,
        task: Task,
        processor: Processor,
        data: Mapping[str, Dataset],
        every: int,
    ) -> None:
        self.trainer, self.task, self.processor = trainer, task, processor
        self.data, self.every = data, every

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Evaluate the model before the first step; one that goes on has been."""
        if state.global_step == 0:
            self._evaluate(0)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Evaluate the model if it is time."""
        if state.global_step % self.every == 0 or state.global_step == state.max_steps:
            self._evaluate(state.global_step)

    def _evaluate(self, step: int) -> None:
        with _chance_untouched():
            results = evaluate(self.trainer, self.task, self.processor, self.data, Silent())
        (result,) = results.values()
        self.trainer.history.record_metric(step, float(result.metrics[self.task.metric]))


@contextmanager
def _chance_untouched() -> Iterator[None]:
    """Give all random generators back as they were: even an ordered data loader draws a seed."""
    python, numpy = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(range(torch.cuda.device_count())):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
