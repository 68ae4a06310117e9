"""The stages of a run, each a function of the `Run`.

Choose heads while training or by scoring, compensate for the cut, and train again after it. `Watch`
evaluates a model while its heads are chosen.
"""

from __future__ import annotations

import copy
import random
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import (
    PreTrainedModel,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

from headcount.heads.mask import HeadMask
from headcount.pruners.base import Pruner, frozen
from headcount.pruners.methods import UNPRUNED, make_pruner
from headcount.pruners.settings import PostHocSettings
from headcount.runs.output import importances, save_importances
from headcount.runs.progress import Progress, Silent
from headcount.runs.resume import train
from headcount.runs.run import Run, ScoringRun
from headcount.runs.settings import RunSettings
from headcount.runs.trainer import evaluate
from headcount.training.history import SelectionHistory
from headcount.training.trainer import PruningTrainer


def choose_while_training(
    run: Run, pruner: Pruner, model: PreTrainedModel, teacher: PreTrainedModel | None
) -> SelectionHistory:
    """Train the model with the pruner's gates, or the gates alone.

    The model is trained in place. It has all heads after that, or fewer if the pruner cuts heads
    while it trains. A training that was stopped goes on from its last checkpoint. The teacher is
    the model to learn from besides the labels, if there is one.

    Returns:
        Which heads were selected when; with `evaluate_every`, also the metric with these heads.
    """
    only_gates = pruner.needs == "gate training"
    chosen, epochs = run.settings.training, run.settings.training.epochs
    if only_gates or run.settings.starts_trained:
        chosen, epochs = chosen.after_fine_tuning(), chosen.pruning_epochs
    trainer = run.trainer(
        model, data=run.train_data, epochs=epochs, training=chosen, pruner=pruner, teacher=teacher
    )
    assert isinstance(trainer, PruningTrainer)
    if (every := chosen.evaluate_every) is not None:
        trainer.add_callback(Watch(run, trainer, every))
    run.progress.begin("learning which heads matter" if only_gates else "fine-tuning and pruning")
    train(trainer)
    trainer.detach()
    return trainer.history


def choose_by_scoring(run: Run, pruner: Pruner, model: PreTrainedModel) -> None:
    """Rank the heads of a fine-tuned model, which is not changed."""
    pruner.refuse(model)
    pruner.score(model, ScoringRun(run, model))


def rank_heads(settings: RunSettings, source: str, path: Path, progress: Progress) -> None:
    """Rank the heads of a fine-tuned model once, to prune it to many numbers of heads.

    Args:
        settings: the settings of a run with a method that scores.
        source: folder or hub name of the fine-tuned model.
        path: the importance file to write, with a rank for every head, down to the last.
        progress: receives each stage and step, for a progress bar.
    """
    pruner = make_pruner(
        settings.method, settings.keep, settings.settings, seed=settings.seed, rank_all=True
    )
    with tempfile.TemporaryDirectory() as scratch:
        run = Run.open(settings, Path(scratch), progress, source)
        model = run.load(source)
        _ = run.sets  # prepared before the clock starts
        started = time.perf_counter()
        choose_by_scoring(run, pruner, model)
        seconds = time.perf_counter() - started
    save_importances(path, settings.method, pruner.mask(), importances(pruner), seconds)


def is_fitted(pruner: Pruner) -> bool:
    """Whether output weights are fitted to make up for the cut heads."""
    return isinstance(pruner.settings, PostHocSettings) and pruner.settings.compensate


def compensated(
    run: Run, pruner: Pruner, model: PreTrainedModel, mask: HeadMask
) -> PreTrainedModel:
    """A copy of the whole, fine-tuned model that loses less when the heads outside the mask go.

    The output weights of the kept heads are fitted on a sample of the training data, in the way of
    the pruner. Weights that it freezes stay as they are.
    """
    settings = pruner.settings
    assert isinstance(settings, PostHocSettings)
    changed = copy.deepcopy(model)
    number = settings.compensate_sample or run.task.fitted_on(run.train_data)
    batches = run.sample(number, changed)
    with frozen(changed, settings.frozen_after):
        fixed = {name for name, p in changed.named_parameters() if not p.requires_grad}
    pruner.make_up(changed, mask, batches, fixed)
    return changed


def recover(
    run: Run,
    pruner: Pruner,
    model: PreTrainedModel,
    teacher: PreTrainedModel | None,
    folder: Path,
) -> None:
    """Train a model in place for `recovery_epochs` after its heads were cut.

    Weights that the pruner freezes stay as they are. A training that was stopped goes on from the
    last checkpoint in the folder.
    """
    training = run.settings.training
    trainer = run.trainer(
        model,
        data=run.train_data,
        epochs=training.recovery_epochs or 0.0,
        training=training.after_fine_tuning(),
        folder=folder,
        pruner=make_pruner(UNPRUNED, None, {"freeze": pruner.settings.frozen_after}),
        teacher=teacher,
    )
    run.progress.begin("training after the cut")
    train(trainer)
    assert isinstance(trainer, PruningTrainer)
    trainer.detach()


class Watch(TrainerCallback):
    """Evaluates the masked model every few steps, and adds its metric to the trainer's history.

    Evaluation mode has the mask in place of the gates. So this is the model that the training would
    give if it ended here (except with a handover, which would still operate). It also evaluates
    before the first step and after the last. The training itself is not changed.
    """

    def __init__(self, run: Run, trainer: PruningTrainer, every: int) -> None:
        self.run, self.trainer, self.every = run, trainer, every
        first, *_ = run.sets.items()
        self.data = dict([first])

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Evaluate before the first step; a resumed training did that already."""
        if state.global_step == 0:
            self._note(0)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Evaluate if it is time."""
        if state.global_step % self.every == 0 or state.global_step == state.max_steps:
            self._note(state.global_step)

    def _note(self, step: int) -> None:
        with chance_untouched():
            task, processor = self.run.task, self.run.processor
            (result,) = evaluate(self.trainer, task, processor, self.data, Silent()).values()
        self.trainer.history.record_metric(step, float(result.metrics[task.metric]))


@contextmanager
def chance_untouched() -> Iterator[None]:
    """Restore all random generators at the end: even an ordered data loader draws a seed."""
    python, numpy = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(range(torch.cuda.device_count())):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
