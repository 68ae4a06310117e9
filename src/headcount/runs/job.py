"""A run with a pruner, in its order: load, choose, cut, check, measure, write.

`prune` and `prune_many` are the way in. Settings that make no sense together are refused here.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from accelerate import PartialState
from transformers import PreTrainedModel

from headcount.atomic import refuse_existing, sweep
from headcount.errors import HeadcountError
from headcount.heads.find import find_heads
from headcount.heads.mask import HeadMask
from headcount.pruners.base import Pruner
from headcount.pruners.choice import Keep
from headcount.pruners.methods import find_pruner, make_pruner, methods_that
from headcount.pruners.scored import Scored
from headcount.runs.base_model import fine_tuned, seconds_of
from headcount.runs.harness import harness_scores, harness_signature, refuse_harness
from headcount.runs.how_many import (
    Choices,
    Search,
    fewest_within,
    goal_count,
    implied_settings,
    meet_goal,
    refuse_ask,
)
from headcount.runs.measure import checked_difference, measure
from headcount.runs.output import Outcome, load_importances, scoring_seconds, write_outcome
from headcount.runs.progress import Progress
from headcount.runs.result import (
    COMPENSATION,
    RECOVERY,
    Reached,
    RunResult,
    Scores,
    Sides,
)
from headcount.runs.run import Run, scores_of
from headcount.runs.settings import RunSettings
from headcount.runs.signature import signature
from headcount.runs.stages import (
    choose_by_scoring,
    choose_while_training,
    compensated,
    is_fitted,
    recover,
)
from headcount.runs.times import StageTimes
from headcount.runs.trainer import Evaluation
from headcount.runs.unfinished import unfinished, unfinished_run
from headcount.surgery.remove import remove_heads
from headcount.tasks.base import Task
from headcount.training.cut_weights import expand
from headcount.training.history import SelectionHistory
from headcount.training.teacher import Distillation

_K = TypeVar("_K", float | int, float | int | None)


@dataclass(frozen=True)
class Options:
    """The arguments of `prune` that are no settings, and how many results share one training."""

    base: Path | None = None
    resume: bool = False
    speed: bool = True
    weights: bool = True
    ranking: Path | None = None
    shared_by: int = 1
    hub_name: str | None = None


class PruningJob:
    """A run with a pruner, from the model to the written folders.

    Settings that cannot work are refused when it is made, before anything is written.

    Args:
        settings: everything that decides the run.
        output: the folder to write; checkpoints are kept beside it until all is done.
        options: how to carry it out.
        progress: receives each stage and step, for a progress bar.
    """

    def __init__(
        self, settings: RunSettings, output: Path, options: Options, progress: Progress
    ) -> None:
        training = settings.training
        self.output, self.options, self.times = output, options, StageTimes()
        self._own = settings.settings
        self.search: Search | None = None  # for the fewest heads within a loss
        refuse_ask(settings)
        # What is asked for instead of a K becomes one when the model is known.
        keep = settings.trained_for or settings.keep
        self.pruner = _make(settings, 1 if keep is None and settings.asks else keep)
        refuse_recovery(settings.method, training.recovery_epochs)
        _refuse_freezing(self.pruner, training.recovery_epochs is not None)
        _refuse_no_training(self.pruner, settings, options.base is not None)
        self.run = Run.open(settings, unfinished(output), progress)
        _refuse_harness(settings, self.run.task)

    def settings_of(self, keep: float | int | None) -> RunSettings:
        """The settings of a run for one K alone, which would give the same model."""
        together = self.run.settings.keep
        if not isinstance(together, tuple):
            return self.run.settings
        return replace(self.run.settings, keep=keep, trained_for=together)

    def go(self, outputs: Mapping[_K, Path]) -> dict[_K, RunResult]:
        """Train once and write a folder for each K; returns the figures by K."""
        run = self.run
        model = run.load()
        if run.settings.asks is None:
            self.pruner.bind(find_heads(model))  # a keep that is too large is refused now
        self._refuse_untrained(model)
        for line in run.task.remarks:
            run.progress.say(line)
        run.prepare()
        self._settle_count(model)
        with unfinished_run(
            self.output, run.settings.to_dict(), run.data_digest, self.options.resume
        ):
            for output in outputs.values():  # another process may have written it meanwhile
                refuse_existing(output)
                sweep(output)
            return self._train_and_cut(model, outputs)

    def _train_and_cut(
        self, model: PreTrainedModel, outputs: Mapping[_K, Path]
    ) -> dict[_K, RunResult]:
        run, state = self.run, PartialState()
        model, before = self._start(model)
        original = len(find_heads(model))
        with self.times.timed("pruning", run.work):
            history = self._choose(model)
        if len(find_heads(model)) < original:
            model = self._whole(model, str(self._base_folder() or run.source))
        if state.is_main_process:
            self.times.keep(run.work)
        return {
            keep: self._cut(model, keep, output, before, history)
            for keep, output in outputs.items()
        }

    # ── how many heads ──

    def _settle_count(self, model: PreTrainedModel) -> None:
        """Turn what was asked for instead of a number of heads into K, as far as that can be."""
        settings = self.run.settings
        if settings.asks is None:
            return
        self._own = implied_settings(settings, model)
        self.pruner = self._pruner_for(None)
        self.pruner.bind(find_heads(model))
        if settings.goal is not None:
            keep = goal_count(self.run, settings.goal, model, self.pruner)
            self.pruner = self._pruner_for(keep)
            self.pruner.bind(find_heads(model))
        else:
            _ = self.run.halves  # too few examples are refused now

    def _pruner_for(self, keep: int | None) -> Pruner:
        """A pruner for another K than the settings have; None for one that ranks all heads."""
        settings = replace(self.run.settings, settings=self._own)
        return _make(settings, keep or 1, rank_all=keep is None)

    # ── where it starts ──

    @property
    def _is_base_itself(self) -> bool:
        """Whether the result is the unchanged base model."""
        return self.pruner.keeps_all and self.options.base is not None

    @property
    def _starts_fine_tuned(self) -> bool:
        warm = self.run.settings.starts_trained
        return self.pruner.is_post_hoc() or warm or self._is_base_itself

    def _base_folder(self) -> Path | None:
        """The base model, if the run starts from it."""
        return self.options.base if self._starts_fine_tuned else None

    def _refuse_untrained(self, model: PreTrainedModel) -> None:
        run = self.run
        taught = self._distillation() is not None and not self.pruner.teaches_itself
        needed = self._starts_fine_tuned or taught
        if needed and not run.task.is_trained(model) and self.options.base is None:
            what = self.pruner.name
            if not self.pruner.is_post_hoc():
                what = "a warm start" if run.settings.starts_trained else "distillation"
            raise HeadcountError(
                f"{what} needs a model that is fine-tuned for {run.task.name}, but "
                f"{run.settings.model} is not; give one that is, or --base DIR to fine-tune it "
                "first and keep it there"
            )

    def _start(self, model: PreTrainedModel) -> tuple[PreTrainedModel, Scores | None]:
        """The model to prune, and the scores of the fine-tuned, unpruned one if there is one."""
        base = self.options.base
        if base is None:
            scores = scores_of(self.run.evaluate(model)) if self._starts_fine_tuned else None
            return model, scores
        with self.times.timed("base"):
            before = fine_tuned(self.run, base)
        if self._is_base_itself:
            self.times.seconds["base"] = seconds_of(base)
        return (self.run.load(str(base)) if self._starts_fine_tuned else model), before

    # ── choose ──

    def _choose(self, model: PreTrainedModel) -> SelectionHistory | None:
        pruner, ranking = self.pruner, self.options.ranking
        if self._is_base_itself:
            return None
        if pruner.needs == "scoring" and self.run.settings.asks is not None:
            self.pruner = self._chosen_for(model)
            return None
        if pruner.needs == "scoring":
            if ranking is not None and isinstance(pruner, Scored):
                pruner.rank_by(load_importances(ranking)[1])
                self.times.seconds["scoring"] = scoring_seconds(ranking)
            else:
                choose_by_scoring(self.run, pruner, model)
            return None
        teacher = None if pruner.is_post_hoc() else self._teacher(model)
        return choose_while_training(self.run, pruner, model, teacher)

    def _chosen_for(self, model: PreTrainedModel) -> Pruner:
        """The pruner that has chosen the heads for what was asked for instead of a K."""
        settings = self.run.settings
        choices = Choices(self.run, model, self._pruner_for)
        if settings.goal is not None:
            return meet_goal(choices, settings.goal, self.pruner.count)
        assert settings.within is not None
        self.search = fewest_within(choices, settings.within)
        return self.search.pruner

    def _distillation(self) -> Distillation | None:
        """How to learn from the unpruned model; None if nothing is trained after the base."""
        training = self.run.settings.training
        trains = not (self.pruner.is_post_hoc() or self._is_base_itself)
        recovers = training.recovery_epochs is not None
        return training.distillation() if trains or recovers else None

    def _teacher(self, model: PreTrainedModel) -> PreTrainedModel | None:
        """The fine-tuned model with all its heads, if the pruned one learns from it."""
        base = self.options.base
        if self._distillation() is None or self.pruner.teaches_itself:
            return None
        return copy.deepcopy(model) if base is None else self.run.load(str(base))

    def _whole(self, cut: PreTrainedModel, source: str) -> PreTrainedModel:
        """A model with all heads, and the weights of one that was trained after heads were cut.

        The cut model is compared with it. The cut heads have their weights from the start.
        """
        model = self.run.load(source)
        expand(cut, model, HeadMask.all(find_heads(cut)))
        return model

    # ── cut, check, measure, write ──

    def _cut(
        self,
        model: PreTrainedModel,
        keep: float | int | None,
        output: Path,
        before: Scores | None,
        history: SelectionHistory | None,
    ) -> RunResult:
        """Cut the model to K heads, check, measure and write it."""
        run, pruner, state = self.run, self.pruner, PartialState()
        several = len(pruner.counts) > 1
        mask = pruner.mask(keep if several else None)
        model, small = self._cut_and_recover(model, mask)
        evaluations = run.evaluate(small)
        if pruner.keeps_all:
            before = scores_of(evaluations)
        result = self._measure(model, small, mask, evaluations, before)
        if state.is_main_process:
            run.progress.begin("writing")
            if several and mask != pruner.mask():
                history = None
            outcome = Outcome(self.settings_of(keep), pruner, mask, history, evaluations, result)
            written = small if self.options.weights else None
            name = self.options.hub_name
            write_outcome(output, outcome, written, run.processor, run.task, name)
        state.wait_for_everyone()
        return result

    def _cut_and_recover(
        self, model: PreTrainedModel, mask: HeadMask
    ) -> tuple[PreTrainedModel, PreTrainedModel]:
        """The whole model and the cut one, after compensation and recovery if asked for."""
        run, pruner = self.run, self.pruner
        recovers = run.settings.training.recovery_epochs is not None
        teacher = self._teacher(model) if recovers else None
        if is_fitted(pruner):
            run.progress.begin("giving back what the cut takes")
            with self.times.timed(COMPENSATION):
                model = compensated(run, pruner, model, mask)
        small = copy.deepcopy(model)
        if not pruner.keeps_all:
            remove_heads(small, mask)
        if recovers:
            folder = run.work / f"{RECOVERY}-{len(mask)}"
            with self.times.timed(RECOVERY, folder):
                recover(run, pruner, small, teacher, folder)
            model = self._whole(small, str(self.options.base or run.source))
        return model, small

    def _harness(self, small: PreTrainedModel) -> Scores:
        """The scores of the cut model on the tasks of lm-evaluation-harness that are asked for."""
        settings = self.run.settings
        if not settings.harness:
            return {}
        return harness_scores(
            small,
            self.run.processor,
            settings.harness,
            self.run.progress,
            folder=settings.harness_tasks,
            limit=settings.harness_examples,
            batch_size=settings.training.eval_batch_size,
        )

    def _measure(
        self,
        whole: PreTrainedModel,
        small: PreTrainedModel,
        mask: HeadMask,
        evaluations: dict[str, Evaluation],
        before: Scores | None,
    ) -> RunResult:
        run, pruner = self.run, self.pruner
        run.progress.begin("comparing masked and cut")
        whole.to(small.device).eval(), small.eval()  # type: ignore[arg-type]
        batches = run.batches(next(iter(run.sets.values())), whole)
        difference = checked_difference(whole, small, mask, batches)
        run.progress.begin("measuring speed and size")
        generates, speed = run.task.generates, self.options.speed
        (measured,) = measure(whole, [small], batches, generates, speed)
        kept, original = len(mask), len(find_heads(whole))
        settings = run.settings
        harness = self._harness(small)
        return RunResult(
            method=pruner.name,
            metric=run.task.metric,
            greater_is_better=run.task.greater_is_better,
            scores=scores_of(evaluations),
            before=before,
            signatures={
                split: signature(
                    pruner,
                    (kept, original),
                    run.task,
                    split,
                    settings.seed,
                    len(data),
                    is_fitted(pruner),
                    self._distillation(),
                    settings.training.recovery_epochs,
                    settings.asks,
                )
                for split, data in run.sets.items()
            }
            | {task: harness_signature(task, settings.harness_examples) for task in harness},
            heads=Sides(original, kept),
            parameters=measured.parameters,
            bytes=measured.bytes,
            examples_per_second=measured.examples_per_second,
            generated_per_second=measured.generated_per_second,
            tokens_per_second=measured.tokens_per_second,
            cache_per_token=measured.cache_per_token,
            also=run.task.also,
            difference=difference,
            seconds=dict(self.times.seconds),
            shared_by=self.options.shared_by,
            harness=harness,
            reached=self._reached(whole, small),
            fewest_within=None if self.search is None else self.search.result(run, small),
        )

    def _reached(self, whole: PreTrainedModel, small: PreTrainedModel) -> Reached | None:
        """What there is of the cache, parameters or speed-up that was asked for."""
        goal = self.run.settings.goal
        if goal is None:
            return None
        batch = self.run.middle_batch(small)
        counted = Sides(goal.count(whole, batch), goal.count(small, batch))
        got = goal.got(counted.before, counted.after)
        met = goal.is_met(counted.before, counted.after)
        return Reached(goal.name, goal.asked, got, met, counted)


def _refuse_harness(settings: RunSettings, task: Task) -> None:
    """Refuse tasks of lm-evaluation-harness for other models than it is for."""
    if settings.harness and task.auto_class != "AutoModelForCausalLM":
        raise HeadcountError(
            f"harness names {settings.harness[0]}, but lm-evaluation-harness is for language "
            f"models and the task is {task.name}; leave out harness"
        )
    refuse_harness(settings.harness, settings.harness_tasks)


def _make(settings: RunSettings, keep: Keep | None, rank_all: bool = False) -> Pruner:
    """The pruner of a run, for this K."""
    training = settings.training
    return make_pruner(
        settings.method,
        keep,
        settings.settings,
        seed=settings.seed,
        warm=settings.starts_trained,
        rate=training.pruning_learning_rate,
        rank_all=rank_all,
    )


def refuse_recovery(method: str, epochs: float | None) -> None:
    """Refuse training after the cut for a method that trains the model itself."""
    if epochs is not None and not find_pruner(method).is_post_hoc():
        raise HeadcountError(
            f"{method} trains the model itself, so it has nothing to recover from; leave out "
            f"recovery_epochs, which is for {', '.join(methods_that('is_post_hoc'))}"
        )


def _refuse_freezing(pruner: Pruner, recovers: bool) -> None:
    """Refuse `freeze` where nothing is trained or fitted."""
    idle = pruner.needs == "scoring" and not recovers and not is_fitted(pruner)
    if pruner.settings.freeze and idle:
        raise HeadcountError(
            f"{pruner.name} changes no weights, so that none can be frozen; leave out freeze, or "
            "give compensate or recovery_epochs too"
        )


def _refuse_no_training(pruner: Pruner, settings: RunSettings, has_base: bool) -> None:
    """Refuse 0 epochs, unless the run starts from a fine-tuned model or takes it as it is."""
    starts_trained = pruner.is_post_hoc() or settings.starts_trained
    if not (settings.training.epochs or starts_trained or (pruner.keeps_all and has_base)):
        raise HeadcountError(
            f"epochs is 0, which takes a fine-tuned model as it is, but {pruner.name} trains it; "
            "give --warm-start to prune that, or more epochs"
        )
