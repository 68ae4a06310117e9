"""A model of a task whose heads are ablated, from the settings of a run."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from copy import copy
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor
from transformers import EvalPrediction
from transformers.trainer_pt_utils import nested_concat, nested_numpify

from headcount.analysis.ablation.replay import MaskedPasses, small_batch
from headcount.analysis.ablation.subject import Subject, refuse_few
from headcount.analysis.ablation.trace import Batch
from headcount.errors import HeadcountError
from headcount.gates import masked
from headcount.heads.find import find_heads
from headcount.heads.mask import HeadMask
from headcount.pruners.michel import importance
from headcount.runs.choose import batches_of, training_batches
from headcount.runs.evaluate import Evaluation, evaluate
from headcount.runs.progress import Progress, Silent, Told
from headcount.runs.score import load_for_task
from headcount.runs.settings import RunSettings
from headcount.runs.trainer import make_trainer, training_arguments
from headcount.tasks.glue import GLUE
from headcount.tasks.registry import make_task


class TaskSubject(Subject):
    """A model of a task, from the settings of a run.

    Args:
        settings: model, task and data.
        progress: who wants to know.
        sample: share of the training data for `importance`.

    Raises:
        HeadcountError: the model is not fine-tuned for the task, or a set is too small.
    """

    def __init__(
        self, settings: RunSettings, progress: Progress | None = None, sample: float = 1.0
    ) -> None:
        self.settings, self.sample = settings, sample
        self.progress = Silent() if progress is None else progress
        self.of, self.processor, self.model = load_for_task(settings)
        self.name, self.data = Path(settings.model).name, Path(settings.data).name
        self.task, self.metric = self.of.name, self.of.metric
        self.greater_is_better = self.of.greater_is_better
        self.progress.begin("preparing data")
        self._data = self.of.evaluation_data(self.processor)
        for split, data in self._data.items():
            refuse_few(split, len(data))
        with tempfile.TemporaryDirectory() as scratch:
            self.model.to(self._arguments(scratch).device)
        self.model.eval()
        self.heads = find_heads(self.model)
        self._passes: MaskedPasses | None = None

    @property
    def sets(self) -> tuple[str, ...]:
        """Of the task, in its order."""
        return tuple(self._data)

    def evaluate(self, split: str, masks: Sequence[HeadMask]) -> list[Evaluation]:
        """By shared passes; where text is generated, one whole evaluation per mask."""
        if self.of.generates:
            return self._generated(split, masks)
        rows = self.settings.training.eval_batch_size
        collator = self.of.collator(self.processor, self.model)
        size = small_batch(self.heads, rows)
        batches = batches_of(self._data[split], size, self.model, collator)
        if self._passes is None:
            self._passes = MaskedPasses(self.model, _inputs(batches[-1]), rows)
        outputs: list[list[Any]] = [[] for _ in masks]
        self.progress.begin(f"{len(masks)} masks on {split}", len(batches))
        for batch in Told(batches, self.progress):
            reduce = partial(self.of.reduce, labels=batch["labels"])
            taken = self._passes.run(_inputs(batch), masks, reduce)
            for made, part in zip(outputs, taken, strict=True):
                made.append(part.cpu())
        gold = _joined([batch["labels"].cpu() for batch in batches])
        return [self._evaluation(EvalPrediction(_joined(made), gold), split) for made in outputs]

    def _evaluation(self, output: EvalPrediction, split: str) -> Evaluation:
        return Evaluation(
            self.of.scores(output, self.processor, split),
            self.of.predictions(output, self.processor, split),
            self.of.gold(output, split),
        )

    def importance(self) -> Tensor:
        """On the sample of the training data."""
        batches = training_batches(self.settings, self.sample, self.model, self.of, self.processor)
        self.progress.begin("scoring heads", len(batches))
        everything = HeadMask.all(self.heads)
        return importance(self.model, self.heads, everything, Told(batches, self.progress))

    def halved(self) -> TaskSubject:
        """Every other example, so that both halves have long and short ones."""
        split, data = next(iter(self._data.items()))
        if self.of.generates:
            raise HeadcountError(
                f"there is one evaluation set, {split}, but heads are chosen on one and reported "
                "on another; name two with --evaluate"
            )
        halves = copy(self)
        halves._data = {
            f"{split}, {name} half": data.select(range(start, len(data), 2))
            for start, name in enumerate(("first", "second"))
        }
        for name, half in halves._data.items():
            refuse_few(name, len(half))
        return halves

    def _generated(self, split: str, masks: Sequence[HeadMask]) -> list[Evaluation]:
        found: list[Evaluation] = []
        with tempfile.TemporaryDirectory() as scratch:
            arguments = self._arguments(scratch)
            trainer = make_trainer(arguments, self.model, self.of, self.processor, Silent())
            self.progress.begin(f"{len(masks)} masks on {split}", len(masks))
            for mask in Told(masks, self.progress):
                with masked(self.model, mask):
                    sets = {split: self._data[split]}
                    found += evaluate(trainer, self.of, self.processor, sets, Silent()).values()
        return found

    def _arguments(self, folder: str) -> Any:
        settings = self.settings
        return training_arguments(settings.training, self.of, Path(folder), 1.0, settings.seed, 1)

    def _signature(self, split: str) -> str:
        return self.of.signature(split)

    def _positive(self) -> str | None:
        row = GLUE.get(self.task)
        return row.labels[row.positive] if row and row.labels else None


def subject_of(given: Subject | RunSettings, progress: Progress | None = None) -> Subject:
    """A subject, made from the settings of a run if it is not one yet."""
    return TaskSubject(given, progress) if isinstance(given, RunSettings) else given


def refuse_other_labels(settings: RunSettings, other: RunSettings) -> None:
    """Tell that two data sets cannot be answered by one classifier.

    Raises:
        HeadcountError: they have different labels.
    """
    both = [getattr(make_task(s.task, s.data_settings()), "labels", ()) for s in (settings, other)]
    names = [sorted(str(label).lower() for label in labels) for labels in both]
    if names[0] != names[1]:
        raise HeadcountError(
            f"{settings.data} has the labels {', '.join(both[0])}, but {other.data} has "
            f"{', '.join(both[1])}; compare sets with the same labels"
        )


def _inputs(batch: Batch) -> dict[str, Any]:
    """Without labels: the loss is not asked for, and costs much where the vocabulary is large."""
    return {name: value for name, value in batch.items() if name not in ("labels", "label_ids")}


def _joined(parts: Sequence[Tensor]) -> Any:
    whole: Any = parts[0]
    for part in parts[1:]:
        whole = nested_concat(whole, part, padding_index=-100)
    return nested_numpify(whole)
