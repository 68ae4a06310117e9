"""Handover: in the middle of a training, the heads that go hand over to those that stay.

The model learns its task with all its heads. Then an operation, or a few, takes the heads out whose
part the others can play, by the surgeon's ranking; the others get the output weights that make up
for them best, and learn the rest of their part in the rest of the training. Nothing is chosen
before the task is learned.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from headcount.errors import HeadcountError
from headcount.heads.find import find_heads
from headcount.heads.mask import HeadMask
from headcount.pruners.base import Pruner, matches
from headcount.pruners.choice import choose
from headcount.pruners.michel import Batch
from headcount.pruners.schedule import Countdown
from headcount.pruners.surgeon import rises
from headcount.surgery.compensate import RIDGE, compensate
from headcount.surgery.outputs import outputs_of

OPERATING = Countdown(0.25, 0.5, 3.0)
AT_ONCE = Countdown(0.0, 0.0, 1.0)  # for a model that knows its task already


class Handover(Pruner):
    """Cut the model down to K heads while it is fine-tuned, in a few operations.

    A `PruningTrainer` operates by itself, on a sample of its training data. In a loop of your own,
    `bind` it to the heads of the model, call `operate` when `is_due` says so, and cut with
    `cut_with_optimizer` (`examples/handover_loop.py` is a whole one). Before the last operation no
    K heads are chosen: `mask` has all that are there.

    Args:
        keep: K.
        countdown: when the operations are, and how many heads each leaves.
        operations: how many; they are equally far apart, and the last is at the countdown's end.
        anew: let the optimizer and the learning rate begin anew after the last operation, since
            what is left has much to learn.
        rate: the model's learning rate when it begins anew; None for the same as before. What was
            just cut may not stand the one that it was fine-tuned with.
        fit: let the heads that stay make up at once, by their output weights, for those that go, as
            well as they can; they train on from there. Where no step follows they do anyway.
        halve: rank anew, in an operation, whenever half of the heads are gone; see `rises`.
        sample: examples of the training data that an operation looks at.
        ridge: what a change of the output weights costs, in units of the mean square of the values.
        **scope: see `Pruner`.
    """

    name: ClassVar[str] = "handover"
    teaches_itself: ClassVar[bool] = True
    scores: Tensor
    done: Tensor

    def __init__(
        self,
        keep: int | float,
        *,
        countdown: Countdown = OPERATING,
        operations: int = 1,
        anew: bool = True,
        rate: float | None = None,
        fit: bool = True,
        halve: bool = False,
        sample: int = 512,
        ridge: float = RIDGE,
        **scope: Any,
    ) -> None:
        super().__init__(keep, **scope)
        for what, number in (("operations", operations), ("sample", sample)):
            if isinstance(number, bool) or not isinstance(number, int) or number < 1:
                raise HeadcountError(
                    f"{what} of {self.name} is {number!r}, expected a whole number; give 1 or more"
                )
        if not ridge > 0:
            raise HeadcountError(f"the ridge is {ridge}, expected a number above 0; try {RIDGE:g}")
        if rate is not None and not rate > 0:
            raise HeadcountError(f"the rate is {rate}, expected a number above 0; try 2e-5")
        self.countdown, self.operations = countdown, operations
        self.anew, self.rate = anew, rate
        self.fit, self.halve, self.sample, self.ridge = fit, halve, sample, ridge

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
        if int(self.done) == self.operations:
            return super().mask(keep)
        return HeadMask.all(self.bound()) if self.present is None else self.present

    def commit(self, heads: HeadMask) -> None:
        """Learn that all heads but these are cut; after the last operation that is final."""
        if int(self.done) == self.operations:
            super().commit(heads)
        else:
            self.present = heads

    @property
    def begins_anew(self) -> bool:
        """Whether the optimizer and its learning rate are to begin anew now."""
        return self.anew and int(self.done) == self.operations

    def _reached(self, step: int, total_steps: int) -> int:
        """How many operations are to be done by then."""
        times = [self._time(number, total_steps) for number in range(1, self.operations + 1)]
        return sum(step >= time for time in times)

    def _time(self, number: int, total_steps: int) -> int:
        """The step after which an operation is due; 0 for before the first one."""
        share = self._share(number)
        return max(1, math.floor(share * self.choosing_steps(total_steps))) if share else 0

    def parts(self, total_steps: int) -> list[int]:
        """The first step of each part of the training, and the number of all steps."""
        last = self._time(self.operations, total_steps)
        return [0, last, total_steps] if self.anew and 0 < last < total_steps else [0, total_steps]

    def _share(self, number: int) -> float:
        start, end = self.countdown.start, self.countdown.end
        return start + (end - start) * number / self.operations

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
            model: in training, with the heads that are left; its output weights are changed such
                that, once cut, it comes closest to what it gives now.
            batches: what the model takes, labels included.
            step: optimizer steps done.
            total_steps: of the whole training.
            agree: turns the choice of one process into that of all, before weights are fitted.

        Returns:
            The heads to cut the model down to.
        """
        self.bind(find_heads(model))
        heads, number = self.bound(), self._reached(step, total_steps)
        count = self.count
        if number < self.operations:
            share = self._share(number)
            count = self.countdown.count_at(share, len(self.places), self.count)
        found = rises(model, self.scope, batches, self.ridge, count if self.halve else None)
        place = {heads.indices[p]: order for order, p in enumerate(self.places)}
        for index, score in found.items():
            self.scores[place[index]] = score
        worth = torch.full((len(heads),), -math.inf, dtype=torch.float64)
        here = torch.tensor([heads.indices[p] in found for p in self.places])
        worth[self.places] = torch.where(here, self.scores.cpu(), -math.inf)
        mask = choose(heads, self.scope, worth, min(count, int(here.sum())))
        mask = mask if agree is None else agree(mask)
        if (self.fit or step >= total_steps) and len(mask) < len(find_heads(model)):
            compensate(model, mask, batches, self.ridge, self._frozen(model))
        self.done.fill_(number)
        return mask

    def _frozen(self, model: nn.Module) -> set[str]:
        """Names of the parameters that do not train."""
        return {
            name
            for name, parameter in model.named_parameters()
            if not parameter.requires_grad or matches(name, self.freeze)
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
