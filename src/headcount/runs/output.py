"""The folder that a run writes: the smaller model, predictions, importances and figures.

An importance file has one score for each head. A study writes such files too, to rank heads once.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from headcount.atomic import new_folder, write_text
from headcount.errors import HeadcountError
from headcount.heads.mask import MASK_FILE, HeadMask
from headcount.json_file import checked, entry, finite, read_json
from headcount.plots.head_map import draw_head_map
from headcount.pruners.base import Pruner
from headcount.runs.card import write_card
from headcount.runs.result import RunResult
from headcount.runs.settings import RunSettings
from headcount.runs.trainer import Evaluation
from headcount.runs.unfinished import SETTINGS
from headcount.tasks.base import Processor, Task
from headcount.training.checkpoint_files import HISTORY
from headcount.training.history import SelectionHistory

IMPORTANCE = "importance.json"
PREDICTIONS = "predictions"  # a folder with one file for each evaluation set
_FORMAT = "headcount importance 1"


@dataclass(frozen=True)
class Outcome:
    """What a run found, to be written.

    Attributes:
        settings: everything that decided the run.
        pruner: the pruner that chose the heads; it gives the importances.
        mask: the kept heads.
        history: which heads were selected when; None for methods that do not learn.
        evaluations: metrics and predictions of the smaller model, by evaluation set.
        result: the figures.
    """

    settings: RunSettings
    pruner: Pruner
    mask: HeadMask
    history: SelectionHistory | None
    evaluations: dict[str, Evaluation]
    result: RunResult


def write_outcome(
    output: Path,
    outcome: Outcome,
    model: PreTrainedModel | None,
    processor: Processor,
    task: Task,
    hub_name: str | None = None,
) -> None:
    """Write a new folder, whole or not at all.

    Args:
        output: the folder.
        outcome: what to write.
        model: the smaller model; None leaves out its weights, processor and card.
        processor: the model's tokenizer or image processor.
        task: knows how a model is written, and the class of transformers that loads it.
        hub_name: what the card calls the model; None for the folder's name.
    """
    settings, mask, name = outcome.settings, outcome.mask, outcome.settings.name
    output.parent.mkdir(exist_ok=True)  # several K have one folder in common
    with new_folder(output) as folder:
        if model is not None:
            task.save(model, processor, folder)
            called, on_hub = hub_name or output.name, hub_name is not None
            write_card(folder, called, task.auto_class, settings, outcome.result, on_hub)
        mask.save(folder / MASK_FILE)
        scores = importances(outcome.pruner)
        save_importances(folder / IMPORTANCE, settings.method, mask, scores)
        title = f"{len(mask)} of {mask.born} heads, {name}, seed {settings.seed}"
        draw_head_map(mask, scores, title, folder / "heads.png")
        if outcome.history is not None:
            outcome.history.save(folder / HISTORY)
        _write_predictions(folder / PREDICTIONS, outcome.evaluations)
        text = json.dumps(settings.to_dict(), indent=2)
        (folder / SETTINGS).write_text(text + "\n", encoding="utf-8")
        outcome.result.save(folder)


def _write_predictions(folder: Path, evaluations: dict[str, Evaluation]) -> None:
    folder.mkdir()
    for split, evaluation in evaluations.items():
        pairs = zip_longest(evaluation.predictions, evaluation.gold or ())
        rows = [{"prediction": said, "reference": right} for said, right in pairs]
        text = json.dumps(rows, ensure_ascii=False)
        (folder / f"{split}.json").write_text(text + "\n", encoding="utf-8")


def importances(pruner: Pruner) -> list[float]:
    """The importance of each head by flat index; NaN for heads outside the pruner's scope."""
    heads = pruner.bound()
    scores = [math.nan] * heads.born
    for place, score in zip(pruner.places, pruner.importance().tolist(), strict=True):
        scores[heads.indices[place]] = float(score)
    return scores


def save_importances(
    path: Path, method: str, mask: HeadMask, scores: list[float], seconds: float | None = None
) -> None:
    """Write a JSON file with one entry per head, in the order of the forward pass.

    Args:
        path: the file to write.
        method: the method that found the scores.
        mask: the heads that are kept.
        scores: by flat index; NaN for heads without one.
        seconds: how long the scoring took. Runs that take their ranking from here add it to theirs.
    """
    if len(scores) != mask.born:
        raise HeadcountError(
            f"there are importances of {len(scores)} heads, but the mask is of {mask.born}; give "
            "files of one run"
        )
    rows = [
        {
            "head": name,
            "importance": None if math.isnan(score) else score,
            "kept": index in mask.kept,
        }
        for index, (name, score) in enumerate(zip((mask | ~mask).names, scores, strict=True))
    ]
    text = ",\n    ".join(json.dumps(row) for row in rows)
    head = f'"format": "{_FORMAT}",\n  "method": {json.dumps(method)}'
    if seconds is not None:
        head += f',\n  "seconds": {seconds:.1f}'
    write_text(path, f'{{\n  {head},\n  "heads": [\n    {text}\n  ]\n}}\n')


def load_importances(path: Path) -> tuple[str, list[float]]:
    """The method that found the importances, and the scores by flat index."""
    method, scores, _ = _read_importances(path)
    return method, scores


def scoring_seconds(path: Path) -> float:
    """How long it took to find the importances in a file; 0 if it does not say."""
    return _read_importances(path)[2]


def _read_importances(path: Path) -> tuple[str, list[float], float]:
    """The method, the scores by flat index, and the seconds that they took."""
    try:
        data = checked(read_json(path), dict, "its content")
        if data.get("format", _FORMAT) != _FORMAT:
            raise ValueError("it has another format")
        rows = [checked(row, dict, "a head") for row in entry(data, "heads", list)]
        if not rows:
            raise ValueError("it has no heads")
        scores = [_score(row) for row in rows]
        seconds = finite(data, "seconds") if "seconds" in data else 0.0
        return entry(data, "method", str), scores, seconds
    except ValueError as error:
        raise HeadcountError(
            f"cannot read importances from {path}: {error}; give a folder that headcount prune "
            "wrote"
        ) from error


def _score(row: dict[str, Any]) -> float:
    outside = "importance" in row and row["importance"] is None
    return math.nan if outside else finite(row, "importance")
