"""The folder that a run leaves: the smaller model, and all that is known about it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from transformers import PreTrainedModel

from headcount.heads.mask import HeadMask
from headcount.loading.folder import new_folder
from headcount.plots.head_map import draw_head_map
from headcount.pruners import Pruner
from headcount.runs.card import write_card
from headcount.runs.evaluate import Evaluation
from headcount.runs.importance import FILE as IMPORTANCE
from headcount.runs.importance import importances, save_importances
from headcount.runs.result import RunResult
from headcount.runs.settings import RunSettings
from headcount.tasks.base import Processor
from headcount.training.history import SelectionHistory

HISTORY, SETTINGS, MASK = "selection_history.json", "settings.json", "mask.json"


@dataclass(frozen=True)
class Outcome:
    """What a run found, to be written.

    Attributes:
        settings: of the run.
        pruner: that chose the heads.
        mask: the kept heads.
        history: of the choice, for methods that learn.
        evaluations: of the smaller model, by evaluation set.
        result: the figures.
    """

    settings: RunSettings
    pruner: Pruner
    mask: HeadMask
    history: SelectionHistory | None
    evaluations: dict[str, Evaluation]
    result: RunResult


def write_outcome(
    output: Path, outcome: Outcome, model: PreTrainedModel | None, processor: Processor, auto: str
) -> None:
    """Write a new folder, whole or not at all.

    Args:
        output: the folder.
        outcome: what to write.
        model: the smaller model; None leaves out its weights and its card.
        processor: written with the model.
        auto: the class of transformers that loads it, for the card.
    """
    settings, mask, name = outcome.settings, outcome.mask, outcome.settings.name
    output.parent.mkdir(exist_ok=True)  # for one of several K
    with new_folder(output) as folder:
        if model is not None:
            model.save_pretrained(folder)
            processor.save_pretrained(folder)
            write_card(folder, output.name, auto, settings, outcome.result)
        mask.save(folder / MASK)
        scores = importances(outcome.pruner)
        save_importances(folder / IMPORTANCE, settings.method, mask, scores)
        title = f"{len(mask)} of {mask.born} heads, {name}, seed {settings.seed}"
        draw_head_map(mask, scores, title, folder / "heads.png")
        if outcome.history is not None:
            outcome.history.save(folder / HISTORY)
        _write_predictions(folder / "predictions", outcome.evaluations)
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
