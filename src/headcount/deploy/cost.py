"""Compare an exported model with the model itself, on the evaluation sets of a task.

The model, its export and the quantised export each get a metric, a size and a speed. A task that
generates text has no metric here; its figures are from one pass over the targets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from torch import Tensor
from transformers import EvalPrediction, PreTrainedModel

from headcount.batch import Batch
from headcount.bench.speed import Job, side_by_side
from headcount.deploy.graph import Tensors, difference
from headcount.deploy.graph_folder import Record
from headcount.deploy.run import Exported
from headcount.runs.measure import weight_bytes
from headcount.runs.run import batches_of
from headcount.runs.settings import RunSettings
from headcount.tasks.base import Processor, Task

Logits = Callable[[Tensors], Tensor]
TIMED = 3  # how many batches are timed; they are spread over the lengths of the evaluation set
BUDGET = 10.0  # seconds after which timing stops


@dataclass
class Cost:
    """Figures of one engine.

    Attributes:
        name: the name of the engine: `model`, the format of the export, or `int8`.
        bytes: the size of the weights, or of the exported files.
        examples_per_second: the speed of one pass.
        difference: the largest difference to the logits of the model; see `graph.difference`.
        metrics: the metrics by evaluation set and name; empty for tasks that generate text.
    """

    name: str
    bytes: int
    examples_per_second: float = 0.0
    difference: float = 0.0
    metrics: dict[str, dict[str, float]] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The figures as `export.json` has them."""
        return asdict(self)


def costs(
    settings: RunSettings,
    task: Task,
    processor: Processor,
    model: PreTrainedModel,
    folder: Path,
    record: Record,
) -> list[Cost]:
    """Evaluate the model, its export, and the quantised export if there is one.

    Args:
        settings: the settings of the evaluation, which give the batch size.
        task: the task to evaluate on.
        processor: the tokenizer or image processor of the model.
        model: the model that was exported.
        folder: the folder of the export.
        record: what `write_export` returned for it.
    """
    graphs = record["graphs"].values()
    engines: dict[str, Logits] = {"model": _logits_of(model)}
    found = [Cost("model", weight_bytes(model))]
    engines[record["format"]] = Exported(folder).logits
    found.append(Cost(record["format"], sum(graph["bytes"] for graph in graphs)))
    if all("int8" in graph for graph in graphs):
        engines["int8"] = Exported(folder, int8=True).logits
        found.append(Cost("int8", sum(graph["int8"]["bytes"] for graph in graphs)))
    sets = _batches(settings, task, processor, model)
    first = next(iter(sets.values()))
    chosen = [first[i * len(first) // TIMED] for i in range(min(TIMED, len(first)))]
    for cost, rate in zip(found, _rates(engines.values(), chosen), strict=True):
        cost.examples_per_second = rate
    for split, batches in sets.items():
        _evaluate(engines, found, task, processor, split, batches)
    return found


def _batches(
    settings: RunSettings, task: Task, processor: Processor, model: PreTrainedModel
) -> dict[str, list[Batch]]:
    collator, size = task.collator(processor, model), settings.training.eval_batch_size
    sets: Mapping[str, Dataset] = task.evaluation_data(processor)
    return {
        name: batches_of(data, size or task.examples_at_once(data), model, collator)
        for name, data in sets.items()
    }


def _logits_of(model: PreTrainedModel) -> Logits:
    model.eval()

    @torch.inference_mode()
    def logits(batch: Tensors) -> Tensor:
        return model(**batch).logits  # type: ignore[no-any-return]

    return logits


def _evaluate(
    engines: Mapping[str, Logits],
    found: Sequence[Cost],
    task: Task,
    processor: Processor,
    split: str,
    batches: Sequence[Batch],
) -> None:
    reduced: list[list[Tensor]] = [[] for _ in engines]
    labels = [batch["labels"] for batch in batches]
    for batch in batches:
        given = _inputs(batch)
        mask = None if "decoder_input_ids" in given else given.get("attention_mask")
        answers = [engine(given) for engine in engines.values()]
        for cost, answer, parts in zip(found, answers, reduced, strict=True):
            cost.difference = max(cost.difference, difference(answers[0], answer, mask))
            if not task.generates:
                parts.append(task.reduce(answer, batch["labels"]))
    if task.generates:
        return
    gold = np.concatenate([part.numpy() for part in labels])
    for cost, parts in zip(found, reduced, strict=True):
        predicted = np.concatenate([part.numpy() for part in parts])
        cost.metrics[split] = task.scores(EvalPrediction(predicted, gold), processor, split)


def _inputs(batch: Batch) -> Tensors:
    return {name: value for name, value in batch.items() if name != "labels"}


def _rates(engines: Any, batches: Sequence[Batch]) -> list[float]:
    def job(engine: Logits) -> Job:
        return lambda: [engine(_inputs(batch)) for batch in batches]

    examples = sum(len(batch["labels"]) for batch in batches)
    seconds = side_by_side([job(engine) for engine in engines], budget=BUDGET)
    return [examples / spent for spent in seconds]
