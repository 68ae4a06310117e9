"""The fine-tuned model that pipelined methods start from: made once, kept for the next run."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from accelerate import PartialState
from transformers import PreTrainedModel

from headcount.atomic import new_folder, sweep
from headcount.errors import HeadcountError
from headcount.runs.progress import Progress
from headcount.runs.result import Scores
from headcount.runs.resume import train
from headcount.runs.run import Run, scores_of
from headcount.runs.settings import ASKS, RunSettings
from headcount.runs.times import earlier_seconds
from headcount.runs.trainer import evaluate
from headcount.runs.unfinished import (
    DATA,
    discard,
    first_change,
    refuse_other_data,
    unfinished,
    unfinished_run,
)

SETTINGS, SCORES, SECONDS = "base_settings.json", "base_metrics.json", "base_seconds.json"
# Settings of a run, and of its training, that play no part in the fine-tuning.
_OF_THE_CUT = (
    "method", "keep", "settings", "harness", "harness_tasks", "harness_limit", "trained_for",
    "variant",
)  # fmt: skip
LATER = (
    "pruning_epochs", "warm_start", "recovery_epochs", "distil", "distil_temperature",
    "distil_hidden", "pruning_learning_rate", "report_to", "log_every", "evaluate_every",
)  # fmt: skip


def fine_tune_base(settings: RunSettings, folder: Path, progress: Progress) -> Scores:
    """Fine-tune the base model of these settings into a folder, unless it is there already."""
    run = Run.open(settings, unfinished(folder), progress)
    run.load()  # the task learns the order of the model's labels
    run.prepare()
    return fine_tuned(run, folder)


def fine_tuned(run: Run, folder: Path) -> Scores:
    """Fine-tune the model of a run into a folder, unless it is there already.

    Returns:
        Its scores by evaluation set and metric.
    """
    settings, task = run.settings, run.task
    wanted = base_settings(settings)
    if folder.exists():
        if PartialState().is_main_process:
            discard(unfinished(folder))  # a kill may have come just before
        refuse_other_data(folder, run.data_digest)
        return _kept(folder, wanted)
    model = run.load()
    if not (settings.training.epochs > 0 or task.is_trained(model)):
        raise HeadcountError(
            f"epochs is 0, which takes {settings.model} as it is, but it is not fine-tuned for "
            f"{task.name}; give one that is, or more epochs"
        )
    data = run.data_digest
    with unfinished_run(folder, wanted, data, resume=True) as work:
        if folder.exists():  # another process has just made it
            return _kept(folder, wanted)
        if PartialState().is_main_process:
            sweep(folder)
        return _train(run, model, folder, work, wanted, data)


def _train(
    run: Run, model: PreTrainedModel, folder: Path, work: Path, wanted: dict[str, Any], data: str
) -> Scores:
    epochs = run.settings.training.epochs if run.settings.fine_tunes else 0.0
    started = time.perf_counter()
    trainer = run.trainer(model, data=run.train_data, epochs=epochs, folder=work)
    if epochs > 0:
        run.progress.begin("fine-tuning")
        train(trainer)
    seconds = time.perf_counter() - started + earlier_seconds(work)
    scores = scores_of(evaluate(trainer, run.task, run.processor, run.sets, run.progress))
    if PartialState().is_main_process:
        with new_folder(folder) as scratch:
            run.task.save(model, run.processor, scratch)
            _write(scratch / SETTINGS, wanted)
            _write(scratch / SCORES, scores)
            _write(scratch / SECONDS, seconds)
            _write(scratch / DATA, {"digest": data})
    return scores


def base_settings(settings: RunSettings) -> dict[str, Any]:
    """The settings that decide the fine-tuned model, whatever method comes after."""
    everything = settings.to_dict()
    for later in (*_OF_THE_CUT, *ASKS):
        everything.pop(later, None)
    for later in LATER:
        del everything["training"][later]
    return json.loads(json.dumps(everything))  # type: ignore[no-any-return]


def seconds_of(folder: Path) -> float:
    """How long it took to fine-tune a base model; 0 if an older version made it."""
    file = folder / SECONDS
    return float(json.loads(file.read_text(encoding="utf-8"))) if file.is_file() else 0.0


def _kept(folder: Path, wanted: dict[str, Any]) -> Scores:
    """The scores of the base model in a folder, if it has the wanted settings."""
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
