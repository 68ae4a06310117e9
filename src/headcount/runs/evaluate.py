"""Score a model on the evaluation sets of a task, and compare masked with cut outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from datasets import Dataset
from torch import nn
from transformers import EvalPrediction, Trainer

from headcount.errors import HeadcountError
from headcount.gates import masked
from headcount.heads.mask import HeadMask
from headcount.runs.progress import Progress
from headcount.tasks.base import Prediction, Processor, Task

TOLERANCE = 1e-4  # rounding over a whole evaluation set, relative to the logits
COMPARED = 16  # batches of the evaluation set, at least


@dataclass(frozen=True)
class Evaluation:
    """What a model reached on one evaluation set.

    Attributes:
        metrics: by name.
        predictions: one per example, in the order of the set.
        gold: what they should be, where such a thing exists.
    """

    metrics: dict[str, float]
    predictions: Sequence[Prediction]
    gold: Sequence[Prediction] | None


def evaluate(
    trainer: Trainer,
    task: Task,
    processor: Processor,
    sets: Mapping[str, Dataset],
    progress: Progress,
) -> dict[str, Evaluation]:
    """Evaluate the trainer's model on every set, with gates or without, as it is now."""
    results = {}
    for split, data in sets.items():
        progress.begin(f"evaluating on {split}")
        output = trainer.predict(data)
        prediction = EvalPrediction(output.predictions, output.label_ids)  # type: ignore[arg-type]
        results[split] = Evaluation(
            task.scores(prediction, processor, split),
            task.predictions(prediction, processor, split),
            task.gold(prediction, split),
        )
    return results


def checked_difference(
    whole: nn.Module, small: nn.Module, mask: HeadMask, batches: Sequence[Mapping[str, Any]]
) -> float:
    """How far the outputs of the cut model are from those of the masked one.

    Raises:
        HeadcountError: further than rounding goes.
    """
    # A cut that were wrong would be so on any batch; these have all lengths.
    some = batches[:: max(1, len(batches) // COMPARED)]
    difference = _largest_difference(whole, small, mask, some)
    if not difference < TOLERANCE:
        raise HeadcountError(
            f"the cut model differs from the masked one by {difference:.1e}, expected less "
            f"than {TOLERANCE:g}; nothing was written, please report this model"
        )
    return difference


def _largest_difference(
    whole: nn.Module, small: nn.Module, mask: HeadMask, batches: Sequence[Mapping[str, Any]]
) -> float:
    """Between the logits of the masked model and of the cut one, relative to them above 1."""
    largest = 0.0
    with torch.inference_mode(), masked(whole, mask):
        for batch in batches:
            expected, given = whole(**batch).logits, small(**batch).logits
            gap = (expected - given).abs()
            gap = torch.where(gap.isnan(), torch.inf, gap)  # a comparison with NaN would lose it
            largest = max(largest, float(gap.max()) / max(1.0, float(expected.abs().max())))
    return largest
