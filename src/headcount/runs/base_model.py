"""The fine-tuned model that pipelined methods start from: made once, kept for the next run."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from accelerate import PartialState
from datasets import Dataset
from transformers import set_seed

from headcount.errors import HeadcountError
from headcount.loading.folder import new_folder
from headcount.runs.elapsed import earlier_seconds
from headcount.runs.evaluate import evaluate
from headcount.runs.progress import Progress
from headcount.runs.settings import RunSettings
from headcount.runs.trainer import make_trainer, train, training_arguments
from headcount.runs.unfinished import (
    UNFINISHED,
    discard,
    first_change,
    unfinished_folder,
)
from headcount.tasks.base import Processor, Task
from headcount.tasks.registry import make_task

SETTINGS, SCORES, SECONDS = "base_settings.json", "base_metrics.json", "base_seconds.json"
Scores = dict[str, dict[str, float]]
# Of the training: what has no part in the fine-tuning.
LATER = (
    "pruning_epochs", "warm_start", "recovery_epochs", "distil", "distil_temperature",
    "distil_hidden", "pruning_learning_rate", "report_to", "log_every", "evaluate_every",
)  # fmt: skip


def base_settings(settings: RunSettings) -> dict[str, Any]:
    """The settings that decide a fine-tuned model, whatever method comes after."""
    everything = settings.to_dict()
    for later in ("method", "keep", "settings", "trained_for", "variant"):
        del everything[later]
    for later in LATER:
        del everything["training"][later]
    return json.loads(json.dumps(everything))  # type: ignore[no-any-return]


def fine_tune_base(settings: RunSettings, folder: Path, progress: Progress) -> Scores:
    """Fine-tune the base model of these settings into a folder, unless it is there already."""
    task = make_task(settings.task, settings.data_settings())
    source = task.model_folder(settings.model)
    processor = task.load_processor(source)
    task.load_model(source, processor)  # a task has its labels in the order of the model's
    progress.begin("preparing data")
    sets = task.evaluation_data(processor)
    return fine_tuned(settings, source, task, processor, sets, folder, progress)


def fine_tuned(
    settings: RunSettings,
    source: str,
    task: Task,
    processor: Processor,
    sets: dict[str, Dataset],
    folder: Path,
    progress: Progress,
) -> Scores:
    """Fine-tune the model into a folder, unless it is there already.

    Args:
        settings: of the run.
        source: the model's folder or hub name.
        task: of the run.
        processor: saved beside the model.
        sets: to evaluate the model on.
        folder: where it is kept.
        progress: who wants to know.

    Returns:
        Its scores by evaluation set and metric.
    """
    wanted = base_settings(settings)
    if folder.exists():
        return _kept(folder, wanted)
    set_seed(settings.seed)  # of a fresh output layer
    model = task.load_model(source, processor)
    trains = settings.training.epochs > 0
    if not (trains or task.is_trained(model)):
        raise HeadcountError(
            f"epochs is 0, which takes {settings.model} as it is, but it is not fine-tuned for "
            f"{task.name}; give one that is, or more epochs"
        )
    state = PartialState()
    if state.is_main_process:
        unfinished_folder(folder, wanted, resume=True)
    state.wait_for_everyone()
    work = folder.with_name(f"{folder.name}{UNFINISHED}")
    data = task.train_data(processor)
    started = time.perf_counter()
    arguments = training_arguments(
        settings.training, task, work, settings.training.epochs, settings.seed, len(data)
    )
    trainer = make_trainer(arguments, model, task, processor, progress, train=data)
    if trains:
        progress.begin("fine-tuning")
        train(trainer)
    seconds = time.perf_counter() - started + earlier_seconds(work)
    results = evaluate(trainer, task, processor, sets, progress)
    scores = {split: result.metrics for split, result in results.items()}
    if state.is_main_process:
        with new_folder(folder) as scratch:
            model.save_pretrained(scratch)
            processor.save_pretrained(scratch)
            _write(scratch / SETTINGS, wanted)
            _write(scratch / SCORES, scores)
            _write(scratch / SECONDS, seconds)
        discard(work)
    state.wait_for_everyone()
    return scores


def seconds_of(folder: Path) -> float:
    """How long it took to fine-tune a base model; 0 if another version did, which does not tell."""
    file = folder / SECONDS
    return float(json.loads(file.read_text(encoding="utf-8"))) if file.is_file() else 0.0


def _kept(folder: Path, wanted: dict[str, Any]) -> Scores:
    try:
        begun = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
        scores: Scores = json.loads((folder / SCORES).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise HeadcountError(
            f"{folder} is not a base model that headcount fine-tuned: {error}; give another folder"
        ) from error
    changed = first_change(begun, wanted)
    if changed is not None:
        key, before, after = changed
        raise HeadcountError(
            f"the base model in {folder} was fine-tuned with {key} {before}, but this run has "
            f"{after}; give another folder for its base model"
        )
    return scores


def _write(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
