"""Evaluate a model as it is or under a mask, and score its heads, without training anything."""

from __future__ import annotations

import tempfile
from pathlib import Path

from transformers import PreTrainedModel, set_seed

from headcount.errors import HeadcountError
from headcount.gates import masked
from headcount.heads.find import find_heads
from headcount.heads.mask import HeadMask
from headcount.pruners import Michel
from headcount.pruners.michel import Granularity, importance
from headcount.runs.choose import training_batches
from headcount.runs.evaluate import Evaluation, evaluate
from headcount.runs.progress import Progress, Told
from headcount.runs.settings import RunSettings
from headcount.runs.trainer import make_trainer, training_arguments
from headcount.tasks.base import Processor, Task
from headcount.tasks.registry import make_task


def load_for_task(settings: RunSettings) -> tuple[Task, Processor, PreTrainedModel]:
    """A model that answers the task already, with its processor.

    Raises:
        HeadcountError: the model was never trained for the task.
    """
    task = make_task(settings.task, settings.data_settings())
    source = task.model_folder(settings.model)
    processor = task.load_processor(source)
    set_seed(settings.seed)
    model = task.load_model(source, processor)
    if not task.is_trained(model):
        raise HeadcountError(
            f"{settings.model} is not fine-tuned for {task.name}: it has no output layer of its "
            "own for these labels; give one that is, such as the output of headcount prune"
        )
    return task, processor, model


def evaluate_model(
    settings: RunSettings, mask: HeadMask | None, progress: Progress
) -> tuple[Task, dict[str, Evaluation]]:
    """The scores of a model on the task's evaluation sets.

    Args:
        settings: model, task and data.
        mask: heads to keep open; None leaves the model as it is.
        progress: who wants to know.
    """
    task, processor, model = load_for_task(settings)
    progress.begin("preparing data")
    sets = task.evaluation_data(processor)
    kept = HeadMask.all(find_heads(model)) if mask is None else mask
    with tempfile.TemporaryDirectory() as scratch, masked(model, kept):
        folder = Path(scratch)
        arguments = training_arguments(settings.training, task, folder, 1.0, settings.seed, 1)
        trainer = make_trainer(arguments, model, task, processor, progress)
        return task, evaluate(trainer, task, processor, sets, progress)


def score_heads(
    settings: RunSettings,
    sample: float,
    granularity: Granularity,
    normalise: bool,
    progress: Progress,
) -> tuple[HeadMask, list[float]]:
    """Michel's importance of every head of a fine-tuned model, on training data.

    Args:
        settings: model, task and data.
        sample: share of the training data to score on.
        granularity: see `Michel`.
        normalise: see `Michel`.
        progress: who wants to know.

    Returns:
        The heads that are there, and the scores by flat index, NaN for those that are not.
    """
    task, processor, model = load_for_task(settings)
    progress.begin("preparing data")
    batches = training_batches(settings, sample, model, task, processor)
    heads = find_heads(model)
    everything = HeadMask.all(heads)
    progress.begin("scoring heads", len(batches))
    found = importance(
        model, heads, everything, Told(batches, progress), granularity, normalise
    ).tolist()
    scores = [float("nan")] * heads.born
    for index, value in zip(heads.indices, found, strict=True):
        scores[index] = value
    return everything, scores


METHOD = Michel.name
