"""How many heads are half of the cache, 90 % of the parameters, or 1.2 times as fast?

People think in these, and a pruner in K. K is found before a pruning, on copies of the model that
are cut to the same share of every block, so for heads of average size. What a choice of heads gives
is counted in the same way after it.
"""

from __future__ import annotations

import copy
import math
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from headcount.batch import Batch, evaluating
from headcount.bench.made_up import random_batch
from headcount.bench.size import cache_bytes, count_flops
from headcount.errors import HeadcountError, SettingError
from headcount.heads.blocks import AttentionBlock, HeadMap
from headcount.heads.find import find_heads
from headcount.heads.mask import HeadMask
from headcount.pruners.choice import Scope, choose
from headcount.pruners.settings import Unit
from headcount.surgery.offloaded import refuse_offloaded
from headcount.surgery.remove import count_parameters, remove_heads

LENGTH = 128  # tokens of a made-up text
FASTEST = 1000  # a larger speed-up is a slip
_ROUNDING = 1e-9


@dataclass(frozen=True)
class _Figure:
    """What is counted of a model.

    Attributes:
        words: what is left of it, for a sentence.
        count: counts it, of a model and a batch.
        is_share: whether a part of the unpruned model's is asked for, or times as little.
    """

    words: str
    count: Callable[[PreTrainedModel, Batch], int]
    is_share: bool = True


@dataclass(frozen=True)
class Goal:
    """What a pruned model shall be, instead of a number of heads.

    Attributes:
        name: `cache`, `parameters` or `speed_up`.
        asked: the share of the unpruned model's cache or parameters; for a speed-up, times as fast.
    """

    name: str
    asked: float

    def __post_init__(self) -> None:
        number = isinstance(self.asked, int | float) and not isinstance(self.asked, bool)
        if FIGURES[self.name].is_share:
            if not (number and 0 < self.asked <= 1):
                raise SettingError(
                    self.name, self.asked, "a share above 0 and up to 1, such as 0.5"
                )
        elif not (number and 1 <= self.asked <= FASTEST):
            raise SettingError(
                self.name, self.asked, f"times as fast, from 1 to {FASTEST:,}, such as 1.2"
            )

    def count(self, model: PreTrainedModel, batch: Batch) -> int:
        """Bytes of the cache, parameters, or operations of a forward pass over a batch."""
        with torch.inference_mode(), evaluating(model):
            return FIGURES[self.name].count(model, batch)

    def got(self, before: float, after: float) -> float:
        """What a pruned model reached, from the counts of both models."""
        return after / before if FIGURES[self.name].is_share else before / after

    def is_met(self, before: float, after: float) -> bool:
        """Whether that is as little, or as fast, as was asked for."""
        got = self.got(before, after)
        if FIGURES[self.name].is_share:
            return got <= self.asked * (1 + _ROUNDING)
        return got >= self.asked * (1 - _ROUNDING)

    def refuse(self, got: float, heads: str) -> HeadcountError:
        """The error for a goal that cannot be had, with the best that can."""
        figure = FIGURES[self.name]
        if figure.is_share:
            best = f"{got:.4f} of {figure.words} are left"
            advice = f"ask for {min(math.ceil(got * 1e4) / 1e4, 1):g} or more"
        else:
            best = f"the model is {got:.4f} times as fast"
            advice = f"ask for {max(math.floor(got * 1e4) / 1e4, 1):g} or less"
        return HeadcountError(
            f"{self.name} {self.asked:g} cannot be had: with {heads} heads {best}; {advice}"
        )


def heads_for(
    model: PreTrainedModel,
    *,
    cache: float | None = None,
    parameters: float | None = None,
    speed_up: float | None = None,
    batch: Batch | None = None,
    even: bool = False,
    unit: Unit | None = None,
) -> int:
    """The largest number of heads with which a model is as small or as fast as asked for.

    Give one of the first three. It counts with heads of average size, and the same share of each
    block.

    Args:
        model: a `transformers` model; it is not changed.
        cache: the share of the key-value cache to keep.
        parameters: the share of the model's parameters to keep.
        speed_up: times as fast, by the operations of matrix products in a forward pass.
        batch: what the forward pass is over; None makes up a text of 128 tokens or an image.
        even: K must fit an even layout; see `PrunerSettings`.
        unit: what goes or stays together. None for whole groups if `cache` asks for them, else
            single heads.
    """
    given = {"cache": cache, "parameters": parameters, "speed_up": speed_up}
    goals = [Goal(name, value) for name, value in given.items() if value is not None]
    if len(goals) != 1:
        raise HeadcountError(
            f"{len(goals)} of cache, parameters and speed_up are given; give one of them"
        )
    (goal,) = goals
    heads = find_heads(model)
    for block in heads.blocks:
        refuse_offloaded(model, block, "cut to be counted")
    if unit is None:
        unit = "group" if needs_groups(goal, heads) else "head"
    if batch is None:
        config = model.config.get_text_config()
        longest = getattr(config, "max_position_embeddings", None) or LENGTH
        made = random_batch(model, 1, min(LENGTH, longest))
        batch = {name: value.to(model.device) for name, value in made.items()}
    return count_for(model, goal, Scope(even=even, unit=unit), batch)


def needs_groups(goal: Goal, heads: HeadMap) -> bool:
    """Whether a goal is about the cache of grouped queries, which shrinks by whole groups only."""
    return goal.name == "cache" and any(b.anatomy.group_size > 1 for b in heads.blocks)


def count_for(model: PreTrainedModel, goal: Goal, scope: Scope, batch: Batch) -> int:
    """The largest K of a scope with which a goal is met, for heads of average size.

    Raises:
        HeadcountError: it cannot be met even with the fewest heads.
    """
    heads = find_heads(model)
    spread = torch.tensor([one for place, b in enumerate(heads.blocks) for one in _ranks(b, place)])
    return largest_count(model, goal, scope, batch, lambda k: choose(heads, scope, spread, k))


def _ranks(block: AttentionBlock, place: int) -> Iterator[float]:
    """An importance for each head of a block, so that all blocks keep the same share of theirs.

    Every key-value head keeps a query as long as it can, which is the least that a choice of single
    heads may free. Blocks that have one head more are spread over the model, by the golden ratio.
    """
    groups = block.key_value_groups
    first = place * 0.618 % 1
    for number, group in enumerate(groups):
        for turn in range(len(group)):
            yield -(turn * len(groups) + number + first) / block.num_heads


def largest_count(
    model: PreTrainedModel,
    goal: Goal,
    scope: Scope,
    batch: Batch,
    mask_of: Callable[[int], HeadMask],
    most: int | None = None,
) -> int:
    """The largest K whose mask meets a goal, by bisection: the size of a model follows K.

    Args:
        model: the unpruned model; it is not changed.
        goal: what to meet.
        scope: says which K fit.
        batch: what operations and cache are counted for.
        mask_of: the heads to keep, by K.
        most: the largest K to try; None for all heads.
    """
    heads = find_heads(model)
    before = goal.count(model, batch)
    fitting = scope.units(heads).fitting
    fitting = fitting if most is None else range(fitting.start, most + 1, fitting.step)

    def after(keep: int) -> int:
        return goal.count(cut_copy(model, mask_of(keep)), batch)

    missed = bisect_left(fitting, True, key=lambda k: not goal.is_met(before, after(k)))
    if not missed:
        least = len(mask_of(fitting.start))
        raise goal.refuse(goal.got(before, after(fitting.start)), f"{least} of {len(heads)}")
    return fitting[missed - 1]


def cut_copy(model: PreTrainedModel, mask: HeadMask) -> PreTrainedModel:
    """A copy of a model that has only the heads of a mask."""
    small = copy.deepcopy(model)
    remove_heads(small, mask)
    return small


def _cached(model: PreTrainedModel, batch: Batch) -> int:
    inputs: dict[str, Any] = {name: v for name, v in batch.items() if name != "labels"}
    labels = batch.get("labels")
    if model.config.is_encoder_decoder and isinstance(labels, Tensor):
        # With labels, models keep no cache.
        inputs.setdefault("decoder_input_ids", labels.clamp(min=0))
    return cache_bytes(model, inputs)


FIGURES = {
    "cache": _Figure("the cache", _cached),
    "parameters": _Figure("the parameters", lambda model, _: count_parameters(model)),
    "speed_up": _Figure(
        "the operations", lambda model, batch: count_flops(lambda: model(**batch)), is_share=False
    ),
}
