"""A model on a named task whose heads are ablated, from the settings of a run."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from copy import copy
from functools import partial
from pathlib import Path
from typing import Any

from accelerate import PartialState
from torch import Tensor
from transformers import EvalPrediction
from transformers.trainer_pt_utils import nested_concat, nested_numpify

from headcount.analysis.ablation.replay import MaskedPasses, small_batch
from headcount.analysis.ablation.subject import Subject, refuse_few
from headcount.batch import Batch
from headcount.errors import HeadcountError
from headcount.gates import masked
from headcount.heads.find import find_heads
from headcount.heads.mask import HeadMask
from headcount.pruners.michel import importance
from headcount.runs.evaluate import open_trained
from headcount.runs.progress import Progress, Silent, Told
from headcount.runs.run import batches_of
from headcount.runs.settings import RunSettings
from headcount.runs.trainer import Evaluation, evaluate
from headcount.tasks.glue import GLUE
from headcount.tasks.registry import make_task


class TaskSubject(Subject):
    """A model on a named task, from the settings of a run.

    Args:
        settings: name the model, the task and the data.
        progress: receives each stage and step, for a progress bar; None shows nothing.
        sample: share of the training data to score `importance` on; less is faster.

    Raises:
        HeadcountError: the model is not fine-tuned for the task, or a set is too small.
    """

    def __init__(
        self, settings: RunSettings, progress: Progress | None = None, sample: float = 1.0
    ) -> None:
        self.settings, self.sample = settings, sample
        self.progress = Silent() if progress is None else progress
        with tempfile.TemporaryDirectory() as scratch:
            self.run, self.model = open_trained(settings, Path(scratch), self.progress)
        self.of, self.processor = self.run.task, self.run.processor
        self.name, self.data = Path(settings.model).name, settings.data_settings().data_name
        self.task, self.metric = self.of.name, self.of.metric
        self.greater_is_better = self.of.greater_is_better
        self.run.prepare()
        self._data = self.run.sets
        for split, data in self._data.items():
            refuse_few(split, len(data))
        self.model.to(PartialState().device)
        self.model.eval()
        self.heads = find_heads(self.model)
        self._passes: MaskedPasses | None = None

    @property
    def sets(self) -> tuple[str, ...]:
        """The evaluation sets of the task, in its order."""
        return tuple(self._data)

    def evaluate(self, split: str, masks: Sequence[HeadMask]) -> list[Evaluation]:
        """Answer a set; masks share forward passes, except where text is generated."""
        if self.of.generates:
            return self._generated(split, masks)
        data = self._data[split]
        rows = self.settings.training.eval_batch_size or self.of.examples_at_once(data)
        collator = self.of.collator(self.processor, self.model)
        size = small_batch(self.heads, rows)
        batches = batches_of(data, size, self.model, collator)
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
        """Score the heads on the sample of the training data."""
        batches = self.run.share(self.sample, self.model)
        self.progress.begin("scoring heads", len(batches))
        everything = HeadMask.all(self.heads)
        return importance(self.model, self.heads, everything, Told(batches, self.progress))

    def halved(self) -> TaskSubject:
        """Split by every other example, so that both halves have long and short ones."""
        split, data = next(iter(self._data.items()))
        if self.of.generates:
            raise HeadcountError(
                f"there is one evaluation set, {split}, but heads are chosen on one and reported "
                "on another; name two with --evaluate"
            )
        halves = copy(self)
        names = (f"{split}, first half", f"{split}, second half")
        halves._data = {
            name: self.of.half(split, data, start, name) for start, name in enumerate(names)
        }
        for name, half in halves._data.items():
            refuse_few(name, len(half))
        return halves

    def _generated(self, split: str, masks: Sequence[HeadMask]) -> list[Evaluation]:
        found: list[Evaluation] = []
        with tempfile.TemporaryDirectory() as scratch:
            trainer = self.run.trainer(self.model, folder=Path(scratch), progress=Silent())
            self.progress.begin(f"{len(masks)} masks on {split}", len(masks))
            for mask in Told(masks, self.progress):
                with masked(self.model, mask):
                    sets = {split: self._data[split]}
                    found += evaluate(trainer, self.of, self.processor, sets, Silent()).values()
        return found

    def _signature(self, split: str) -> str:
        return self.of.signature(split)

    def _positive(self) -> str | None:
        row = GLUE.get(self.task)
        return row.labels[row.positive] if row and row.labels else None


def subject_of(given: Subject | RunSettings, progress: Progress | None = None) -> Subject:
    """The subject itself, or one made from the settings of a run."""
    return TaskSubject(given, progress) if isinstance(given, RunSettings) else given


def refuse_other_labels(settings: RunSettings, other: RunSettings) -> None:
    """Raise if one classifier cannot answer two data sets.

    Raises:
        HeadcountError: the data sets have different labels.
    """
    both = [getattr(make_task(s.task, s.data_settings()), "labels", ()) for s in (settings, other)]
    names = [sorted(str(label).lower() for label in labels) for labels in both]
    if names[0] != names[1]:
        raise HeadcountError(
            f"{settings.data_settings().data_name} has the labels {', '.join(both[0])}, but "
            f"{other.data_settings().data_name} has {', '.join(both[1])}; compare sets with the "
            "same labels"
        )


def _inputs(batch: Batch) -> dict[str, Any]:
    """The batch without labels: no loss is needed, and a large vocabulary makes it costly."""
    return {name: value for name, value in batch.items() if name not in ("labels", "label_ids")}


def _joined(parts: Sequence[Tensor]) -> Any:
    whole: Any = parts[0]
    for part in parts[1:]:
        whole = nested_concat(whole, part, padding_index=-100)
    return nested_numpify(whole)
