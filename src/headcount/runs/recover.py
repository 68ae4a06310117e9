"""Train a model on after its heads were cut, so that those that stay take over from the others."""

from __future__ import annotations

from pathlib import Path

from transformers import PreTrainedModel

from headcount.pruners import Unpruned
from headcount.runs.progress import Progress
from headcount.runs.settings import RunSettings
from headcount.runs.trainer import make_trainer, train, training_arguments
from headcount.tasks.base import Processor, Task
from headcount.training.trainer import PruningTrainer


def recover(
    settings: RunSettings,
    model: PreTrainedModel,
    task: Task,
    processor: Processor,
    folder: Path,
    teacher: PreTrainedModel | None,
    progress: Progress,
) -> None:
    """Train a model for `recovery_epochs`, in place.

    Args:
        settings: of the run.
        model: with the heads that stay.
        task: gives the data.
        processor: of the model.
        folder: for checkpoints; a training that stopped goes on from the last one.
        teacher: the model to learn from, besides the labels.
        progress: who wants to know.
    """
    data = task.train_data(processor)
    epochs = settings.training.recovery_epochs or 0.0
    chosen = settings.training.after_fine_tuning()
    arguments = training_arguments(chosen, task, folder, epochs, settings.seed, len(data))
    whole = Unpruned(freeze=settings.settings.get("freeze") or ())
    teaching = {"teacher": teacher, "distillation": settings.training.distillation()}
    trainer = make_trainer(
        arguments, model, task, processor, progress, train=data, pruner=whole, **teaching
    )
    progress.begin("training after the cut")
    train(trainer)
    assert isinstance(trainer, PruningTrainer)
    trainer.detach()
