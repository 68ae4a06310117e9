"""Handover: in the middle of a training, the heads that go hand over to those that stay.

The model learns its task with all its heads. Then an operation, or a few, takes the heads out whose
part the others can play, by the surgeon's ranking; the others get the output weights that make up
for them best, and learn the rest of their part in the rest of the training. Nothing is chosen
before the task is learned.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from headcount.batch import Batch
from headcount.errors import SettingError
from headcount.heads.find import find_heads
from headcount.heads.mask import HeadMask
from headcount.pruners.base import Pruner, matching_parameters
from headcount.pruners.choice import choose
from headcount.pruners.schedule import Countdown
from headcount.pruners.settings import HIDDEN, PrunerSettings
from headcount.pruners.surgeon import refuse_no_ridge, removal_costs
from headcount.surgery.compensate import RIDGE, compensate
from headcount.surgery.outputs import outputs_of

OPERATING = Countdown(0.25, 0.5, 3.0)
AT_ONCE = Countdown(0.0, 0.0, 1.0)  # for a model that knows its task already


@dataclass(frozen=True)
class HandoverSettings(PrunerSettings):
    """When the operations are, and what each does.

    Attributes:
        countdown: start, end and power. The operations are between these two shares of the
            training, and the power of the curve decides how many heads each one leaves. With one
            operation, only the end counts: a later end leaves more steps to learn the task, and
            fewer to the small model. After a warm start it is [0, 0, 1]: one operation, at once.
        operations: number of operations. They are equally far apart, and the last one is at the
            countdown's end. More than one ranks the heads again after each cut, and keeps the usual
            countdown after a warm start too.
        anew: start the optimizer and the learning rate again after the last operation, because the
            heads that stay have much to learn.
        fit: fit the output weights of the heads that stay at each operation, so that they make up
            at once for those that go. If no training step follows, they are fitted in any case.
        measured: compare layers by measurement in an operation, as the surgeon does. It takes
            longer, and is worth it where few of many heads stay.
        sample: number of training examples that an operation looks at; a count, not a share.
        ridge: price of a change of the output weights, in units of the mean square of the values. A
            higher one keeps them closer to what they were.
        rate: the model's learning rate when it starts again; None for the same as before. A model
            that was just cut may need a lower one. In a recipe it is `pruning_learning_rate`.
    """

    countdown: Countdown = OPERATING
    operations: int = 1
    anew: bool = True
    fit: bool = True
    measured: bool = False
    sample: int = 512
    ridge: float = RIDGE
    rate: float | None = field(default=None, metadata=HIDDEN)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("operations", "sample"):
            if getattr(self, name) < 1:
                raise SettingError(name, getattr(self, name), "a whole number; give 1 or more")
        refuse_no_ridge(self.ridge)
        if self.rate is not None and not self.rate > 0:
            raise SettingError("rate", self.rate, "a number above 0; try 2e-5")

    @classmethod
    def in_run(cls, given: Mapping[str, Any], warm: bool) -> Mapping[str, Any]:
        """Operate at once on a model that knows its task already."""
        if warm and given.get("operations", 1) == 1:
            return {"countdown": AT_ONCE, **given}
        return given

    def at_rate(self, rate: float | None) -> Self:
        """Train on at this rate after the last operation."""
        return replace(self, rate=rate)


class Handover(Pruner):
    """Cut the model down to K heads while it is fine-tuned, in a few operations.

    A `PruningTrainer` operates by itself, on a sample of its training data. In a loop of your own,
    `bind` it to the heads of the model, call `operate` when `is_due` says so, and cut with
    `cut_with_optimizer` (`examples/handover_loop.py` is a whole one). Before the last operation no
    K heads are chosen: `mask` has all that are there.

    Args:
        keep: K.
        settings: see `HandoverSettings`.
        **given: see `Pruner`.
    """

    name: ClassVar[str] = "handover"
    settings_class: ClassVar[type[PrunerSettings]] = HandoverSettings
    teaches_itself: ClassVar[bool] = True
    settings: HandoverSettings
    scores: Tensor
    done: Tensor

    def prepare(self, number: int) -> None:
        """No head was scored yet, and no operation was done."""
        self.register_buffer("scores", torch.zeros(number, dtype=torch.float64))
        self.register_buffer("done", torch.zeros((), dtype=torch.int64))

    def refuse(self, model: nn.Module) -> None:
        """An operation needs plain output projections."""
        heads = find_heads(model)
        outputs_of(model, heads, HeadMask.all(heads))

    def is_due(self, step: int, total_steps: int) -> bool:
        """Whether the time of an operation has come that was not done."""
        self.bound()
        return self._reached(step, total_steps) > int(self.done)

    def mask(self, keep: int | float | None = None) -> HeadMask:
        """The K heads that stay; before the last operation all that are there."""
        if int(self.done) == self.settings.operations:
            return super().mask(keep)
        return HeadMask.all(self.bound()) if self.present is None else self.present

    def commit(self, heads: HeadMask) -> None:
        """Learn that all heads except these are cut; after the last operation that is final."""
        if int(self.done) == self.settings.operations:
            super().commit(heads)
        else:
            self.present = heads

    @property
    def operating_sample(self) -> int:
        """How many training examples an operation looks at."""
        return self.settings.sample

    @property
    def has_operated(self) -> bool:
        """Whether an operation was done."""
        return int(self.done) > 0

    @property
    def late_rate(self) -> float | None:
        """The model's learning rate after the last operation; None for the same as before."""
        return self.settings.rate

    @property
    def begins_anew(self) -> bool:
        """Whether the optimizer and its learning rate are to start again now."""
        return self.settings.anew and int(self.done) == self.settings.operations

    def _reached(self, step: int, total_steps: int) -> int:
        """How many operations are to be done by then."""
        times = [
            self._time(number, total_steps) for number in range(1, self.settings.operations + 1)
        ]
        return sum(step >= time for time in times)

    def _time(self, number: int, total_steps: int) -> int:
        """The step after which an operation is due; 0 for before the first one."""
        share = self._share(number)
        return max(1, math.floor(share * self.choosing_steps(total_steps))) if share else 0

    def parts(self, total_steps: int) -> list[int]:
        """The first step of each part of the training, and the number of all steps."""
        last = self._time(self.settings.operations, total_steps)
        return (
            [0, last, total_steps]
            if self.settings.anew and 0 < last < total_steps
            else [0, total_steps]
        )

    def _share(self, number: int) -> float:
        start, end = self.settings.countdown.start, self.settings.countdown.end
        return start + (end - start) * number / self.settings.operations

    def operate(
        self,
        model: nn.Module,
        batches: Sequence[Batch],
        step: int,
        total_steps: int,
        agree: Callable[[HeadMask], HeadMask] | None = None,
    ) -> HeadMask:
        """Choose the heads that stay after this operation, and fit their output weights.

        Args:
            model: in training, with the heads that are left. Its output weights are changed so
                that, once cut, it comes closest to what it gives now.
            batches: what the model takes, labels included.
            step: optimizer steps done.
            total_steps: number of steps of the whole training.
            agree: turns the choice of one process into that of all, before weights are fitted.

        Returns:
            The heads to cut the model down to.
        """
        self.bind(find_heads(model))
        heads, number = self.bound(), self._reached(step, total_steps)
        count = self.count
        if number < self.settings.operations:
            share = self._share(number)
            count = self.settings.countdown.count_at(share, len(self.places), self.count)
            count = self.units.on_the_way(count)
        down_to = count if self.settings.measured else None
        found = removal_costs(model, self.scope, batches, self.settings.ridge, down_to)
        place = {heads.indices[p]: order for order, p in enumerate(self.places)}
        for index, score in found.items():
            self.scores[place[index]] = score
        worth = torch.full((len(heads),), -math.inf, dtype=torch.float64)
        here = torch.tensor([heads.indices[p] in found for p in self.places])
        worth[self.places] = torch.where(here, self.scores.cpu(), -math.inf)
        mask = choose(heads, self.scope, worth, min(count, int(here.sum())))
        mask = mask if agree is None else agree(mask)
        if (self.settings.fit or step >= total_steps) and len(mask) < len(find_heads(model)):
            fixed, is_last = self._frozen(model), step >= total_steps
            compensate(model, mask, batches, self.settings.ridge, fixed, answers=is_last)
        self.done.fill_(number)
        return mask

    def _frozen(self, model: nn.Module) -> set[str]:
        """Names of the parameters that do not train."""
        chosen = {id(p) for p in matching_parameters(model, self.settings.freeze)}
        return {
            name
            for name, parameter in model.named_parameters()
            if not parameter.requires_grad or id(parameter) in chosen
        }

    def gates(self) -> Tensor:
        """All open: a head is there, or it was cut."""
        return torch.ones(len(self.places))

    def importance(self) -> Tensor:
        """What the last operation that had a head found out about it."""
        return self.scores

    @property
    def cuts_while_training(self) -> bool:
        """That is what it does."""
        return True

    def signature(self) -> list[str]:
        """When the operations were, and what they did."""
        settings = self.settings
        parts = [f"countdown:{settings.countdown}", f"operations:{settings.operations}"]
        did = [word for word in ("anew", "fit", "measured") if getattr(settings, word)]
        return [*super().signature(), *parts, *did]
