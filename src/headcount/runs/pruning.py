"""The steps of a run: train, choose, cut to one K or to several, check, measure, write."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from accelerate import PartialState
from datasets import Dataset
from transformers import PreTrainedModel, set_seed

from headcount.errors import HeadcountError
from headcount.heads.find import find_heads
from headcount.heads.mask import HeadMask
from headcount.pruners import Handover, Pruner, Unpruned
from headcount.pruners.scored import Scored
from headcount.runs.base_model import Scores, fine_tuned, seconds_of
from headcount.runs.choose import batches_of, choose_by_scoring, choose_while_training
from headcount.runs.compensated import compensated
from headcount.runs.elapsed import Stages
from headcount.runs.evaluate import Evaluation, checked_difference, evaluate
from headcount.runs.importance import load_importances, rank_by, scoring_seconds
from headcount.runs.measure import measure
from headcount.runs.methods import COMPENSATE, Method, find_method
from headcount.runs.output import Outcome, write_outcome
from headcount.runs.progress import Progress
from headcount.runs.recover import recover
from headcount.runs.result import RECOVERY, RunResult, Sides
from headcount.runs.settings import RunSettings
from headcount.runs.signature import signature
from headcount.runs.trainer import make_trainer, training_arguments
from headcount.runs.unfinished import UNFINISHED, discard, unfinished_folder
from headcount.surgery.remove import remove_heads
from headcount.tasks.base import Processor, Task
from headcount.tasks.registry import make_task
from headcount.training.distil import Distillation
from headcount.training.history import SelectionHistory
from headcount.training.shrink import expand

_K = TypeVar("_K", float | int, float | int | None)


class PruningRun:
    """A run that is about to be done.

    Args:
        settings: of the run.
        output: its folder; checkpoints are kept beside it until all is done.
        base: see `prune`.
        resume: see `prune`.
        speed: see `prune`.
        progress: who wants to know.

    Attributes:
        weights: see `prune`.
        ranking: see `prune`.
        shared_by: how many results its training gives.
    """

    def __init__(
        self,
        settings: RunSettings,
        output: Path,
        base: Path | None,
        resume: bool,
        speed: bool,
        progress: Progress,
    ) -> None:
        self.settings, self.output, self.base = settings, output, base
        self.resume, self.speed, self.progress = resume, speed, progress
        self.work = output.with_name(f"{output.name}{UNFINISHED}")
        self.stages = Stages()
        self.weights, self.shared_by = True, 1
        self.ranking: Path | None = None
        # Everything that can be wrong is looked at before anything is written.
        self.method: Method = find_method(settings.method)
        keep = settings.trained_for or settings.keep
        warm = settings.training.warm_start
        self.pruner: Pruner = self.method.make(keep, settings.settings, settings.seed, warm)
        if isinstance(self.pruner, Handover):
            self.pruner.rate = settings.training.pruning_learning_rate
        self.method.refuse_recovery(settings.training.recovery_epochs)
        self.method.refuse_freezing(settings.settings, self._recovers)
        self.method.refuse_no_training(settings.training, base is not None)
        self.compensation = self.method.compensation(settings.settings)
        self.task: Task = make_task(settings.task, settings.data_settings())
        self.source = self.task.model_folder(settings.model)
        self.processor: Processor = self.task.load_processor(self.source)

    def settings_of(self, keep: float | int | None) -> RunSettings:
        """The settings of the run for one K, which would give the same model alone."""
        together = self.settings.keep
        if not isinstance(together, tuple):
            return self.settings
        return replace(self.settings, keep=keep, trained_for=together)

    def go(self, outputs: Mapping[_K, Path]) -> dict[_K, RunResult]:
        """Train once, and write a folder for each K; returns the figures by K."""
        state = PartialState()
        model = self._load(self.source)
        self.pruner.bind(find_heads(model))  # a keep that is too large is told now
        trained = self.task.is_trained(model)
        whole = isinstance(self.pruner, Unpruned) and self.base is not None
        after = self.method.post_hoc or self.settings.training.warm_start or whole
        taught = self._distillation() is not None and not self.pruner.teaches_itself
        if (after or taught) and not trained and self.base is None:
            raise HeadcountError(
                f"{self._what()} needs a model that is fine-tuned for {self.task.name}, but "
                f"{self.settings.model} is not; give one that is, or --base DIR to fine-tune it "
                "first and keep it there"
            )
        self.progress.begin("preparing data")
        for part, number in self.task.dropped.items():
            if number:
                self.progress.say(f"{number} examples of {part} are broken or undecided: left out")
        sets = self.task.evaluation_data(self.processor)
        if state.is_main_process:
            unfinished_folder(self.output, self.settings.to_dict(), self.resume)
        state.wait_for_everyone()
        before: Scores | None = None
        if self.base is not None:
            with self.stages.timed("base"):
                before = self._base(sets, self.base)
            if whole:
                self.stages.seconds["base"] = seconds_of(self.base)
            if after:
                model = self._load(str(self.base))
        elif after:
            before = self._scores(self._evaluate(model, sets))
        born = len(find_heads(model))
        with self.stages.timed("pruning", self.work):
            history = self._choose(model, sets)
        if len(find_heads(model)) < born:
            model = self._whole(model, str(self.base) if after and self.base else self.source)
        if state.is_main_process:
            self.stages.keep(self.work)
        results = {}
        for keep, output in outputs.items():
            results[keep] = self._cut(model, keep, output, sets, before, history)
        if state.is_main_process:
            discard(self.work)
        state.wait_for_everyone()
        return results

    def _cut(
        self,
        model: PreTrainedModel,
        keep: float | int | None,
        output: Path,
        sets: dict[str, Dataset],
        before: Scores | None,
        history: SelectionHistory | None,
    ) -> RunResult:
        """Cut the model to K heads, check, measure and write it."""
        state = PartialState()
        several = len(self.pruner.counts) > 1
        mask = self.pruner.mask(keep if several else None)
        teacher = self._teacher(model) if self._recovers else None
        if self.compensation is not None:
            self.progress.begin("giving back what the cut takes")
            with self.stages.timed(COMPENSATE):
                model = compensated(
                    model, mask, self.compensation, self.settings, self.task, self.processor
                )
        small = copy.deepcopy(model)
        if not isinstance(self.pruner, Unpruned):
            remove_heads(small, mask)
        if self._recovers:
            folder = self.work / f"{RECOVERY}-{len(mask)}"
            with self.stages.timed(RECOVERY, folder):
                common = (self.task, self.processor, folder)
                recover(self.settings, small, *common, teacher, self.progress)
            model = self._whole(small, str(self.base or self.source))
        evaluations = self._evaluate(small, sets)
        if isinstance(self.pruner, Unpruned):
            before = self._scores(evaluations)
        result = self._measure(model, small, mask, sets, evaluations, before)
        if state.is_main_process:
            self.progress.begin("writing")
            if several and mask != self.pruner.mask():
                history = None
            settings = self.settings_of(keep)
            outcome = Outcome(settings, self.pruner, mask, history, evaluations, result)
            written = small if self.weights else None
            write_outcome(output, outcome, written, self.processor, self.task.auto_class)
        state.wait_for_everyone()
        return result

    @property
    def _recovers(self) -> bool:
        return self.settings.training.recovery_epochs is not None

    def _distillation(self) -> Distillation | None:
        """What is learned from the unpruned model, if anything is trained after the base."""
        given = isinstance(self.pruner, Unpruned) and self.base is not None
        trains = not (self.method.post_hoc or given) or self._recovers
        return self.settings.training.distillation() if trains else None

    def _what(self) -> str:
        if self.method.post_hoc:
            return self.method.name
        return "a warm start" if self.settings.training.warm_start else "distillation"

    def _load(self, source: str) -> PreTrainedModel:
        set_seed(self.settings.seed)  # of a fresh output layer
        return self.task.load_model(source, self.processor)

    def _whole(self, cut: PreTrainedModel, source: str) -> PreTrainedModel:
        """A model with all heads and the weights of one whose heads left while it was trained.

        It is what the cut model is compared with: the heads that left are those of the start.
        """
        model = self._load(source)
        expand(cut, model, HeadMask.all(find_heads(cut)))
        return model

    def _base(self, sets: dict[str, Dataset], folder: Path) -> Scores:
        return fine_tuned(
            self.settings, self.source, self.task, self.processor, sets, folder, self.progress
        )

    def _choose(self, model: PreTrainedModel, sets: dict[str, Dataset]) -> SelectionHistory | None:
        common = (self.pruner, model, self.task, self.processor)
        if isinstance(self.pruner, Unpruned) and self.base is not None:
            return None  # the base model is the result
        if self.method.needs == "scoring":
            if self.ranking is not None and isinstance(self.pruner, Scored):
                rank_by(self.pruner, load_importances(self.ranking)[1])
                self.stages.seconds["scoring"] = scoring_seconds(self.ranking)
                return None
            first = next(iter(sets))
            choose_by_scoring(
                self.settings, *common, {first: sets[first]}, self.work, self.progress
            )
            return None
        teacher = None if self.method.post_hoc else self._teacher(model)
        return choose_while_training(
            self.settings, self.method, *common, self.work, self.progress, teacher
        )

    def _teacher(self, model: PreTrainedModel) -> PreTrainedModel | None:
        """The fine-tuned model with all its heads, if it is to be learned from."""
        if self._distillation() is None or self.pruner.teaches_itself:
            return None
        return copy.deepcopy(model) if self.base is None else self._load(str(self.base))

    def _evaluate(self, model: PreTrainedModel, sets: dict[str, Dataset]) -> dict[str, Evaluation]:
        arguments = training_arguments(
            self.settings.training, self.task, self.work, 1.0, self.settings.seed, 1
        )
        trainer = make_trainer(arguments, model, self.task, self.processor, self.progress)
        return evaluate(trainer, self.task, self.processor, sets, self.progress)

    @staticmethod
    def _scores(evaluations: dict[str, Evaluation]) -> Scores:
        return {split: evaluation.metrics for split, evaluation in evaluations.items()}

    def _measure(
        self,
        whole: PreTrainedModel,
        small: PreTrainedModel,
        mask: HeadMask,
        sets: dict[str, Dataset],
        evaluations: dict[str, Evaluation],
        before: Scores | None,
    ) -> RunResult:
        self.progress.begin("comparing masked and cut")
        whole.to(small.device).eval(), small.eval()  # type: ignore[arg-type]
        collator = self.task.collator(self.processor, whole)
        first = next(iter(sets.values()))
        batches = batches_of(first, self.settings.training.eval_batch_size, whole, collator)
        difference = checked_difference(whole, small, mask, batches)
        self.progress.begin("measuring speed and size")
        measured = measure(whole, small, batches, self.task.generates, self.speed)
        kept, born = len(mask), len(find_heads(whole))
        return RunResult(
            method=self.method.name,
            metric=self.task.metric,
            greater_is_better=self.task.greater_is_better,
            scores=self._scores(evaluations),
            before=before,
            signatures={
                split: signature(
                    self.pruner,
                    (kept, born),
                    self.task,
                    split,
                    self.settings.seed,
                    len(data),
                    self.compensation is not None,
                    self._distillation(),
                    self.settings.training.recovery_epochs,
                )
                for split, data in sets.items()
            },
            heads=Sides(born, kept),
            parameters=measured.parameters,
            bytes=measured.bytes,
            examples_per_second=measured.examples_per_second,
            generated_per_second=measured.generated_per_second,
            difference=difference,
            seconds=dict(self.stages.seconds),
            shared_by=self.shared_by,
        )
