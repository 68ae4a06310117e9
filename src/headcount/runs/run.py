"""One run: what was asked for, and the model, data, trainer and evaluation that its stages need.

A stage is a function of the `Run`; see `stages.py`. A pruner that scores heads sees the run only as
`ScoringRun`.
"""

from __future__ import annotations

import copy
import inspect
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from itertools import count
from pathlib import Path

from accelerate import PartialState
from datasets import Dataset
from torch import nn
from torch.utils.data import DataLoader
from transformers import PreTrainedModel, Trainer, set_seed

from headcount.batch import Batch
from headcount.errors import HeadcountError
from headcount.pruners.base import Pruner
from headcount.pruners.own_answers import own_answers
from headcount.pruners.scored import ScoredSettings
from headcount.runs.progress import Progress, Silent, Told
from headcount.runs.result import HALVES
from headcount.runs.settings import RunSettings, TrainingSettings
from headcount.runs.trainer import Evaluation, evaluate, make_trainer
from headcount.tasks.base import Collator, Processor, Task
from headcount.tasks.registry import make_task


class Run:
    """A run that is about to be done. `Run.open` makes one from its settings.

    Args:
        settings: everything that decides the run.
        task: gives data, models and the metric.
        processor: the model's tokenizer or image processor.
        work: the folder for checkpoints; it is removed when all is done.
        progress: receives each stage and step, for a progress bar.
    """

    def __init__(
        self,
        settings: RunSettings,
        task: Task,
        processor: Processor,
        work: Path,
        progress: Progress,
    ) -> None:
        self.settings, self.task, self.processor = settings, task, processor
        self.work, self.progress = work, progress

    @classmethod
    def open(
        cls,
        settings: RunSettings,
        work: Path,
        progress: Progress,
        source: str | None = None,
        evaluate_only: bool = False,
    ) -> Run:
        """The run of these settings, with its task and processor loaded.

        Args:
            settings: everything that decides the run.
            work: the folder for checkpoints.
            progress: receives each stage and step, for a progress bar.
            source: folder or hub name to take the processor from; None for the settings' model.
            evaluate_only: nothing is trained or scored, so training data may be missing.
        """
        data = replace(settings.data_settings(), evaluate_only=evaluate_only)
        task = make_task(settings.task, data)
        processor = task.load_processor(source or task.model_folder(settings.model))
        return cls(settings, task, processor, work, progress)

    @cached_property
    def source(self) -> str:
        """Folder or hub name of the model to start from."""
        return self.task.model_folder(self.settings.model)

    def load(self, source: str | None = None) -> PreTrainedModel:
        """The model to start from, or another one of the same kind."""
        set_seed(self.settings.seed)  # draws a fresh output layer
        return self.task.load_model(source or self.source, self.processor)

    @property
    def sets(self) -> dict[str, Dataset]:
        """The evaluation sets by name. Tune on the first one."""
        return self.task.evaluation_data(self._worker)

    def prepare(self) -> None:
        """Get ready all that the first batch needs."""
        self.progress.begin("preparing data")
        _ = self.sets

        def tell(done: int, total: int) -> None:
            if done == 0:
                self.progress.begin("asking the unpruned model", total)
            self.progress.advance(done)

        self.task.get_ready(self.processor, tell)

    @cached_property
    def halves(self) -> tuple[dict[str, Dataset], dict[str, Dataset]]:
        """Two halves of the set to tune on, by name: one to choose on, the other to report on.

        Examples go to them by turns. The sets are sorted by length, and half of a sorted set is not
        like the other.
        """
        split, data = next(iter(self.sets.items()))
        if len(data) < 2:
            raise HeadcountError(
                f"{split} has {len(data)} example, expected two or more to choose on one half and "
                "report on the other; give more data, or a larger limit_eval"
            )
        names = [f"{split}, {half}" for half in HALVES]
        first, second = (
            {name: self.task.half(split, data, start, name)} for start, name in enumerate(names)
        )
        return first, second

    @property
    def train_data(self) -> Dataset:
        """All training examples."""
        return self.task.train_data(self._worker)

    @cached_property
    def data_digest(self) -> str:
        """A digest of the data, by which a run that goes on knows that they are the same."""
        return self.task.data_digest()

    @cached_property
    def _worker(self) -> Processor:
        """A copy of the processor: a tokenizer that was used is saved with how it was used."""
        return copy.deepcopy(self.processor)

    def trainer(
        self,
        model: PreTrainedModel,
        *,
        data: Dataset | None = None,
        epochs: float = 1.0,
        training: TrainingSettings | None = None,
        folder: Path | None = None,
        pruner: Pruner | None = None,
        teacher: PreTrainedModel | None = None,
        progress: Progress | None = None,
    ) -> Trainer:
        """A trainer for fine-tuning, pruning or evaluating a model.

        Args:
            model: the model to train or to evaluate.
            data: the examples to train on; None only evaluates.
            epochs: passes over these examples.
            training: how to train; None for the run's own training settings.
            folder: where checkpoints go; None for the run's own folder.
            pruner: chooses heads while the model trains; None trains the plain model.
            teacher: the model to learn from besides the labels. It needs a pruner.
            progress: receives the steps; None for the run's own.
        """
        return make_trainer(
            self, model, data, epochs, training or self.settings.training, folder or self.work,
            pruner, teacher, progress or self.progress,
        )  # fmt: skip

    def evaluate(self, model: PreTrainedModel) -> dict[str, Evaluation]:
        """Metrics and predictions of a model on every evaluation set."""
        return evaluate(self.trainer(model), self.task, self.processor, self.sets, self.progress)

    def score_on(self, model: PreTrainedModel, data: Mapping[str, Dataset]) -> float:
        """The metric that decides, of a model on one set."""
        trainer = self.trainer(model, progress=Silent())
        (result,) = evaluate(trainer, self.task, self.processor, data, Silent()).values()
        return float(result.metrics[self.task.metric])

    def metric(self, model: PreTrainedModel) -> Callable[[], float]:
        """A function that measures the model, as it is gated at that moment, on the set to tune on.

        It gives the metric that decides, with the sign that makes greater better.
        """
        trainer = self.trainer(model, progress=Silent())
        sign = 1.0 if self.task.greater_is_better else -1.0
        # A choice by the metric must not see the half that is reported on.
        halved = self.settings.within is not None
        sets = self.halves[0] if halved else dict([next(iter(self.sets.items()))])

        def metric() -> float:
            (result,) = evaluate(trainer, self.task, self.processor, sets, Silent()).values()
            return sign * result.metrics[self.task.metric]

        return metric

    def middle_batch(self, model: PreTrainedModel) -> Batch:
        """A batch of the set to tune on, of middle length, on the model's device."""
        data = next(iter(self.sets.values()))
        start = len(data) // 2
        size = self.settings.training.eval_batch_size or self.task.examples_at_once(data)
        stop = min(start + size, len(data))
        return self.batches(data.select(range(start, stop)), model)[0]

    def sample(self, number: int, model: PreTrainedModel) -> list[Batch]:
        """Batches of this many training examples, or of all if there are fewer; longest first.

        The run's seed draws them; a task may read no more than some (`calibrated_on`). The model is
        moved to this process's device first.
        """
        nn.Module.to(model, PartialState().device)
        data = self.train_data
        number = min(number, self.task.calibrated_on or number)
        if number < len(data):
            drawn = random.Random(self.settings.seed).sample(range(len(data)), number)
            data = data.select(sorted(drawn))
        lengths = data["length"]
        data = data.select(sorted(range(len(data)), key=lambda row: -lengths[row]))
        return self.batches(data, model)

    def share(self, share: float, model: PreTrainedModel) -> list[Batch]:
        """Batches of a share of the training examples, longest first; see `calibrated_on`."""
        most, number = self.task.calibrated_on, max(round(share * len(self.train_data)), 1)
        if most is not None and most < number:
            self.progress.say(
                f"heads are scored on {most} of {len(self.train_data):,} blocks of text; set "
                "limit_train to read another number"
            )
        return self.sample(number, model)

    def batches(self, data: Dataset, model: PreTrainedModel) -> list[Batch]:
        """Batches of these examples, in their order, on the model's device."""
        size = self.settings.training.eval_batch_size or self.task.examples_at_once(data)
        return batches_of(data, size, model, self.task.collator(self.processor, model))


class ScoringRun:
    """What a pruner may ask a run for while it scores a model; see `ScoringData`."""

    def __init__(self, run: Run, model: PreTrainedModel) -> None:
        self.run, self.model = run, model

    def batches(self, settings: ScoredSettings, rounds: int) -> Iterable[Batch]:
        """Batches of the training data to score on, to be gone through this many times."""
        batches = self.run.share(settings.sample, self.model)
        if settings.labels == "none":
            self.run.progress.begin("drawing the model's own answers")
            batches = own_answers(self.model, batches, self.run.settings.seed)
        self.run.progress.begin("scoring heads", rounds * len(batches))
        return Told(batches, self.run.progress, rounds)

    def told(self, what: str, times: int) -> Callable[[int], None]:
        """A function that reports how many times something was done, and of how many."""
        begun = False

        def tell(done: int) -> None:
            nonlocal begun
            if not begun:  # not before: going through the data is a stage of its own
                self.run.progress.begin(what, times)
                begun = True
            self.run.progress.advance(done)

        return tell

    def metric(self) -> Callable[[], float]:
        """A function that measures the model as it is gated at that moment; greater is better."""
        return self.run.metric(self.model)

    def measuring(self, what: str, times: int) -> Callable[[], float]:
        """The same with progress, for a metric that is asked for this many times."""
        self.run.progress.begin(what, times)
        metric = self.metric()
        done = count(1)

        def measured() -> float:
            value = metric()
            self.run.progress.advance(next(done))
            return value

        return measured


def batches_of(data: Dataset, size: int, model: PreTrainedModel, collator: Collator) -> list[Batch]:
    """Batches of these examples, in their order, on the model's device.

    Only columns that the model's forward pass takes are kept.
    """
    taken = {*inspect.signature(model.forward).parameters, "labels", "label_ids", "label"}
    columns = [name for name in data.column_names if name in taken]
    loader = DataLoader(data.select_columns(columns), batch_size=size, collate_fn=collator)
    return [{name: value.to(model.device) for name, value in batch.items()} for batch in loader]


def scores_of(evaluations: Mapping[str, Evaluation]) -> dict[str, dict[str, float]]:
    """The metrics of evaluations, by evaluation set and name."""
    return {split: evaluation.metrics for split, evaluation in evaluations.items()}
