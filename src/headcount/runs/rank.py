"""Rank the heads of a fine-tuned model once, for pruning it to many numbers of heads."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from transformers import set_seed

from headcount.heads.find import find_heads
from headcount.runs.choose import choose_by_scoring
from headcount.runs.importance import importances, save_importances
from headcount.runs.methods import find_method
from headcount.runs.progress import Progress
from headcount.runs.settings import RunSettings
from headcount.tasks.registry import make_task


def rank_heads(settings: RunSettings, source: str, path: Path, progress: Progress) -> None:
    """Write the importances that a method which scores finds on its way down to the last head.

    Args:
        settings: of a run with such a method.
        source: the fine-tuned model.
        path: the importance file.
        progress: who wants to know.
    """
    pruner = find_method(settings.method).make(settings.keep, settings.settings, settings.seed)
    task = make_task(settings.task, settings.data_settings())
    processor = task.load_processor(source)
    set_seed(settings.seed)
    model = task.load_model(source, processor)
    pruner.keep = None  # down to the last, for any K
    pruner.bind(find_heads(model))
    name, data = next(iter(task.evaluation_data(processor).items()))
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as scratch:
        choose_by_scoring(
            settings, pruner, model, task, processor, {name: data}, Path(scratch), progress
        )
    seconds = time.perf_counter() - started
    save_importances(path, settings.method, pruner.mask(), importances(pruner), seconds)
