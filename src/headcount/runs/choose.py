"""Choose the heads of a run: while the model trains, while only gates train, or by scoring."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable
from pathlib import Path

from accelerate import PartialState
from datasets import Dataset
from torch import nn
from torch.utils.data import DataLoader
from transformers import PreTrainedModel

from headcount.errors import HeadcountError
from headcount.gates import masked
from headcount.heads.find import find_heads
from headcount.heads.mask import HeadMask
from headcount.pruners import Ablation, Michel, Pruner, Surgeon
from headcount.pruners.michel import Batch
from headcount.runs.evaluate import evaluate
from headcount.runs.methods import SAMPLE, UNTIL, Method
from headcount.runs.progress import Progress, Silent, Told
from headcount.runs.settings import RunSettings
from headcount.runs.trainer import make_trainer, train, training_arguments
from headcount.runs.watch import Watch
from headcount.tasks.base import Collator, Processor, Task
from headcount.training.history import SelectionHistory
from headcount.training.trainer import PruningTrainer


def choose_while_training(
    settings: RunSettings,
    method: Method,
    pruner: Pruner,
    model: PreTrainedModel,
    task: Task,
    processor: Processor,
    folder: Path,
    progress: Progress,
    teacher: PreTrainedModel | None = None,
) -> SelectionHistory:
    """Train the model with the pruner's gates, or the gates alone.

    The model has all heads after that, or fewer if the pruner lets heads go while it trains.

    Args:
        settings: of the run.
        method: what is trained.
        pruner: learns the choice.
        model: the model, trained in place if the method trains it.
        task: gives the data.
        processor: of the model.
        folder: for checkpoints; a training that stopped goes on from the last one.
        progress: who wants to know.
        teacher: the model to learn from, besides the labels.

    Returns:
        Which heads were selected when, and how good the model was with them if that was asked for.
    """
    data = task.train_data(processor)
    only_gates = method.needs == "gate training"
    chosen, epochs = settings.training, settings.training.epochs
    if only_gates or chosen.warm_start:
        chosen, epochs = chosen.after_fine_tuning(), chosen.pruning_epochs
    arguments = training_arguments(chosen, task, folder, epochs, settings.seed, len(data))
    teaching = {"teacher": teacher, "distillation": settings.training.distillation()}
    trainer = make_trainer(
        arguments, model, task, processor, progress, train=data, pruner=pruner, **teaching
    )
    assert isinstance(trainer, PruningTrainer)
    if (every := settings.training.evaluate_every) is not None:
        first, *_ = task.evaluation_data(processor).items()
        trainer.add_callback(Watch(trainer, task, processor, dict([first]), every))
    progress.begin("learning which heads matter" if only_gates else "fine-tuning and pruning")
    train(trainer)
    trainer.detach()
    return trainer.history


def choose_by_scoring(
    settings: RunSettings,
    pruner: Pruner,
    model: PreTrainedModel,
    task: Task,
    processor: Processor,
    tune: dict[str, Dataset],
    folder: Path,
    progress: Progress,
) -> None:
    """Rank the heads of a fine-tuned model; it is not changed.

    Args:
        settings: of the run.
        pruner: keeps the ranking.
        model: the fine-tuned model.
        task: gives the data.
        processor: of the model.
        tune: the evaluation set to tune on, for methods that ask for the metric.
        folder: for what a trainer may write.
        progress: who wants to know.
    """
    pruner.bind(find_heads(model))
    if isinstance(pruner, Michel | Surgeon):
        sample = settings.settings.get(SAMPLE, 1.0)
        batches = training_batches(settings, sample, model, task, processor)
        progress.begin("scoring heads", pruner.rounds * len(batches))
        told = Told(batches, progress, pruner.rounds)
        if isinstance(pruner, Surgeon):
            pruner.fit(model, told)
        else:
            good_enough = None
            if (share := settings.settings.get(UNTIL)) is not None:
                score = _metric(settings, model, task, processor, tune, folder)
                good_enough = _good_enough(model, score, share)
            pruner.fit(model, told, good_enough)
    elif isinstance(pruner, Ablation):
        progress.begin("leaving out each head", len(pruner.places) + 1)
        score = _metric(settings, model, task, processor, tune, folder)
        done = iter(range(1, len(pruner.places) + 2))

        def scored(asked: nn.Module) -> float:
            value = score()
            progress.advance(next(done))
            return value

        pruner.fit(model, scored)


def training_batches(
    settings: RunSettings, sample: float, model: PreTrainedModel, task: Task, processor: Processor
) -> list[Batch]:
    """Batches of a share of the training data on the model's device, longest examples first."""
    if not 0 < sample <= 1:
        raise HeadcountError(
            f"the sample is {sample}, expected a share of the training data; give one up to 1"
        )
    data = task.train_data(processor)
    wanted = max(round(sample * len(data)), 1)
    return sampled_batches(settings, data, wanted, model, task, processor)


def sampled_batches(
    settings: RunSettings,
    data: Dataset,
    wanted: int,
    model: PreTrainedModel,
    task: Task,
    processor: Processor,
) -> list[Batch]:
    """Batches of so many of the examples, or of all if they are fewer, longest first.

    Where this process has a device of its own, the model goes there first.
    """
    nn.Module.to(model, PartialState().device)
    if wanted < len(data):
        drawn = random.Random(settings.seed).sample(range(len(data)), wanted)
        data = data.select(sorted(drawn))
    lengths = data["length"]
    data = data.select(sorted(range(len(data)), key=lambda row: -lengths[row]))
    return batches_of(
        data, settings.training.eval_batch_size, model, task.collator(processor, model)
    )


def batches_of(data: Dataset, size: int, model: PreTrainedModel, collator: Collator) -> list[Batch]:
    """The examples in their order as batches on the model's device, of what the model takes."""
    taken = {*inspect.signature(model.forward).parameters, "labels", "label_ids", "label"}
    columns = [name for name in data.column_names if name in taken]
    loader = DataLoader(data.select_columns(columns), batch_size=size, collate_fn=collator)
    return [{name: value.to(model.device) for name, value in batch.items()} for batch in loader]


def _metric(
    settings: RunSettings,
    model: PreTrainedModel,
    task: Task,
    processor: Processor,
    tune: dict[str, Dataset],
    folder: Path,
) -> Callable[[], float]:
    """The deciding metric of the model as it is gated now, on the set to tune on."""
    arguments = training_arguments(settings.training, task, folder, 1.0, settings.seed, 1)
    trainer = make_trainer(arguments, model, task, processor, Silent())
    sign = 1.0 if task.greater_is_better else -1.0

    def metric() -> float:
        (result,) = evaluate(trainer, task, processor, tune, Silent()).values()
        return sign * result.metrics[task.metric]

    return metric


def _good_enough(
    model: nn.Module, score: Callable[[], float], share: float
) -> Callable[[HeadMask], bool]:
    if not 0 < share <= 1:
        raise HeadcountError(f"until is {share}, expected a share of the metric, such as 0.9")
    whole = score()
    floor = share * whole if whole > 0 else whole / share

    def good_enough(mask: HeadMask) -> bool:
        with masked(model, mask):
            return score() >= floor

    return good_enough
