"""Evaluate a model as it is or under a mask, and score its heads, without training anything."""

from __future__ import annotations

import tempfile
from pathlib import Path

from transformers import PreTrainedModel

from headcount.errors import HeadcountError
from headcount.gates import masked
from headcount.heads.find import find_heads
from headcount.heads.mask import HeadMask
from headcount.pruners.gate_gradients import Granularity
from headcount.pruners.michel import importance
from headcount.pruners.scored import refuse_no_share
from headcount.runs.progress import Progress, Told
from headcount.runs.run import Run
from headcount.runs.settings import RunSettings
from headcount.runs.trainer import Evaluation
from headcount.tasks.base import Task

METHOD = "michel"  # the method whose importance `score_heads` finds


def evaluate_model(
    settings: RunSettings, mask: HeadMask | None, progress: Progress
) -> tuple[Task, dict[str, Evaluation]]:
    """The scores of a model on the task's evaluation sets.

    Args:
        settings: names the model, the task and the data.
        mask: the heads to keep open; None leaves the model as it is.
        progress: receives each stage and step, for a progress bar.

    Returns:
        The task, and metrics and predictions by evaluation set.
    """
    with tempfile.TemporaryDirectory() as scratch:
        run, model = open_trained(settings, Path(scratch), progress, evaluate_only=True)
        for line in run.task.remarks:
            progress.say(line)
        run.prepare()
        with masked(model, HeadMask.all(find_heads(model)) if mask is None else mask):
            return run.task, run.evaluate(model)


def score_heads(
    settings: RunSettings,
    sample: float,
    granularity: Granularity,
    normalise: bool,
    progress: Progress,
) -> tuple[HeadMask, list[float]]:
    """Michel's importance of every head of a fine-tuned model, on training data.

    Args:
        settings: names the model, the task and the data.
        sample: share of the training data to score on; a smaller one is faster and less exact.
        granularity: see `MichelSettings`.
        normalise: see `MichelSettings`.
        progress: receives each stage and step, for a progress bar.

    Returns:
        The heads of the model, and the scores by flat index; NaN for heads that were cut before.
    """
    refuse_no_share(sample)
    with tempfile.TemporaryDirectory() as scratch:
        run, model = open_trained(settings, Path(scratch), progress)
    run.prepare()
    batches = run.share(sample, model)
    heads = find_heads(model)
    everything = HeadMask.all(heads)
    progress.begin("scoring heads", len(batches))
    told = Told(batches, progress)
    found = importance(model, heads, everything, told, granularity, normalise).tolist()
    scores = [float("nan")] * heads.born
    for index, value in zip(heads.indices, found, strict=True):
        scores[index] = value
    return everything, scores


def open_trained(
    settings: RunSettings, work: Path, progress: Progress, evaluate_only: bool = False
) -> tuple[Run, PreTrainedModel]:
    """A run and its model, which must be fine-tuned for the task already."""
    run = Run.open(settings, work, progress, evaluate_only=evaluate_only)
    model = run.load()
    if not run.task.is_trained(model):
        raise HeadcountError(
            f"{settings.model} is not fine-tuned for {run.task.name}: it has no output layer of "
            "its own for these labels; give one that is, such as the output of headcount prune"
        )
    return run, model
