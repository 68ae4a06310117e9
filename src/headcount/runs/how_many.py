"""How many heads a run keeps that was asked for something else than a number.

For a cache, parameters or a speed-up, K is found before the pruning, for heads of average size
(`goal_count`). A method that scores then takes fewer if the heads that it chose are larger
(`meet_goal`). For a loss of the metric, K is found by trying (`fewest_within`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedModel

from headcount.bench.heads_for import Goal, count_for, cut_copy, largest_count, needs_groups
from headcount.errors import HeadcountError
from headcount.heads.find import find_heads
from headcount.heads.mask import HeadMask
from headcount.pruners.base import Pruner
from headcount.pruners.methods import METHODS, find_pruner, read_settings, recipe_keys
from headcount.pruners.scored import Scored
from headcount.runs.output import importances
from headcount.runs.result import FewestWithin, Sides
from headcount.runs.run import Run
from headcount.runs.settings import RunSettings
from headcount.runs.stages import choose_by_scoring, compensated, is_fitted
from headcount.surgery.remove import remove_heads

UNIT = "unit"  # the setting that says what goes or stays together


def refuse_ask(settings: RunSettings) -> None:
    """Refuse what a method cannot be asked for instead of a number of heads."""
    if settings.asks is None:
        return
    method, asked = settings.method, settings.asks.partition("=")[0]
    pruner = find_pruner(method)
    if pruner.keeps_all:
        raise HeadcountError(f"{method} keeps all heads; leave out {asked}")
    if settings.within is not None and pruner.needs != "scoring":
        able = [name for name in METHODS if find_pruner(name).needs == "scoring"]
        raise HeadcountError(
            f"within tries many numbers of heads, for each of which {method} would train again; "
            f"choose one of {', '.join(able)}, or give keep"
        )
    own = read_settings(method, settings.settings, settings.starts_trained)
    if pruner.needs == "scoring" and not pruner.needs_keep(own):
        raise HeadcountError(
            f"the settings of {method} say already how many heads stay; leave out these, or {asked}"
        )


def implied_settings(settings: RunSettings, model: PreTrainedModel) -> dict[str, Any]:
    """The settings of the method with whole groups, if the cache that was asked for needs them."""
    own, goal = settings.settings, settings.goal
    if goal is None or not needs_groups(goal, find_heads(model)):
        return own
    if own.get(UNIT, "group") != "group":
        raise HeadcountError(
            f"{UNIT} is {own[UNIT]}, but the cache of grouped queries shrinks with whole groups "
            f"only; leave out {UNIT}"
        )
    known = UNIT in recipe_keys(find_pruner(settings.method))
    return {**own, UNIT: "group"} if known else own


def goal_count(run: Run, goal: Goal, model: PreTrainedModel, pruner: Pruner) -> int:
    """K for a goal, before anything is pruned."""
    run.progress.begin("counting heads")
    keep = count_for(model, goal, pruner.scope, run.middle_batch(model))
    groups = ", in whole groups" if pruner.settings.unit == "group" else ""
    what = goal.name.replace("_", "-")
    run.progress.say(f"{what} {goal.asked:g} is {keep} heads of average size{groups}")
    return keep


class Choices:
    """What a method that scores chooses from one model, for any K.

    One ranking down to the last head serves every K, for methods that rank once. Others score again
    for each K.

    Args:
        run: gives the data.
        model: the fine-tuned model; it is not changed.
        make: makes a pruner for one K; None is for a ranking of all heads.
    """

    def __init__(
        self, run: Run, model: PreTrainedModel, make: Callable[[int | None], Pruner]
    ) -> None:
        self.run, self.model, self.make = run, model, make
        self.first = make(None)
        self.first.bind(find_heads(model))
        self._made: dict[int, Pruner] = {}
        self._ranking: list[float] | None = None
        if self.first.ranks_once and isinstance(self.first, Scored):
            choose_by_scoring(run, self.first, model)
            self._ranking = importances(self.first)

    def pruner(self, keep: int) -> Pruner:
        """The pruner that has chosen this many heads."""
        if keep not in self._made:
            pruner = self.make(keep)
            pruner.bind(find_heads(self.model))
            if self._ranking is not None and isinstance(pruner, Scored):
                pruner.rank_by(self._ranking)
            else:
                choose_by_scoring(self.run, pruner, self.model)
            self._made[keep] = pruner
        return self._made[keep]

    def mask(self, keep: int) -> HeadMask:
        """The heads that it has chosen."""
        return self.pruner(keep).mask()

    def cut(self, keep: int) -> PreTrainedModel:
        """The model with these heads, as the run would give it: fitted, if it is to be."""
        pruner, mask = self.pruner(keep), self.mask(keep)
        if not is_fitted(pruner):
            return cut_copy(self.model, mask)
        small = compensated(self.run, pruner, self.model, mask)
        remove_heads(small, mask)
        return small


def meet_goal(choices: Choices, goal: Goal, keep: int) -> Pruner:
    """The choice of K heads; of fewer, if those are larger than the average and miss the goal."""
    run, model = choices.run, choices.model
    batch = run.middle_batch(model)
    after = goal.count(cut_copy(model, choices.mask(keep)), batch)
    if goal.is_met(goal.count(model, batch), after):
        return choices.pruner(keep)
    scope = choices.first.scope
    fewer = largest_count(model, goal, scope, batch, choices.mask, keep)
    run.progress.say(f"the chosen heads are larger than the average; {fewer} of them stay")
    return choices.pruner(fewer)


@dataclass(frozen=True)
class Search:
    """A finished search for the fewest heads within a loss.

    Attributes:
        pruner: has chosen K heads.
        before: the metric of the unpruned model on the half to choose on, and on the other.
        tried: each K that was tried, with its metric on the half to choose on, fewest first.
    """

    pruner: Pruner
    before: tuple[float, float]
    tried: tuple[tuple[int, float], ...]

    def result(self, run: Run, small: PreTrainedModel) -> FewestWithin:
        """The same with the metric of the final model on both halves."""
        assert run.settings.within is not None
        one, other = (
            Sides(before, run.score_on(small, half))
            for before, half in zip(self.before, run.halves, strict=True)
        )
        return FewestWithin(run.settings.within, self.pruner.count, one, other, self.tried)


def fewest_within(choices: Choices, loss: float) -> Search:
    """The fewest heads with which a model loses no more than this part of its metric.

    K is found by bisection, which assumes that more heads are never worse. It has always tried the
    K that it finds and the next smaller one.

    Args:
        choices: of a method that scores.
        loss: the part of the metric that may be lost.
    """
    run, model = choices.run, choices.model
    halves = run.halves
    before = (run.score_on(model, halves[0]), run.score_on(model, halves[1]))
    sign = 1.0 if run.task.greater_is_better else -1.0
    worst = sign * before[0] - loss * abs(before[0])
    units = choices.first.units
    tried: dict[int, float] = {}
    run.progress.begin("looking for the fewest heads", len(units.fitting).bit_length())

    def is_good(keep: int) -> bool:
        whole = keep == units.heads
        tried[keep] = before[0] if whole else run.score_on(choices.cut(keep), halves[0])
        run.progress.advance(len(tried), f"{keep} heads")
        return sign * tried[keep] >= worst or whole

    place = bisect_left(units.fitting, True, key=is_good)
    if place == len(units.fitting):
        raise HeadcountError(
            f"no number of heads loses at most {100 * loss:g} % of the {run.task.metric}: "
            f"{units.high} heads, the most that fit, have {tried[units.high]:.4g} and all have "
            f"{before[0]:.4g}; allow more"
        )
    found = choices.pruner(units.fitting[place])
    return Search(found, before, tuple(sorted(tried.items())))
