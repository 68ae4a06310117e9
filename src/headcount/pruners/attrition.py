"""Attrition: heads leave one after another while the model trains, and none is replaced.

The heads that leave are those whose gates the loss has felt least, by a running mean of what Michel
et al. measure once: the absolute gradient of the gate, with every block's divided by its norm. The
model trains all the time, so that what is left takes over what leaves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from headcount.errors import HeadcountError, SettingError
from headcount.heads.mask import HeadMask
from headcount.pruners.base import Pruner
from headcount.pruners.choice import choose
from headcount.pruners.schedule import Countdown
from headcount.pruners.settings import PrunerSettings

FALLING = Countdown()


@dataclass(frozen=True)
class AttritionSettings(PrunerSettings):
    """When heads leave, and how it is decided which.

    Attributes:
        countdown: start, end and power. Heads leave between these two shares of the training. A
            power of 3 loses most of them early and the last ones slowly; 1 loses them at a constant
            rate.
        memory: share of the running mean that a step leaves as it is. A higher one looks further
            back.
        balance: divide the gates' gradient by its norm in each block, so that layers are compared
            fairly.
        shed: cut heads that have left out of the model while it trains. It changes only the time
            and memory of the rest of the training, and what attention dropout draws.
    """

    countdown: Countdown = FALLING
    memory: float = 0.98
    balance: bool = True
    shed: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.memory < 1:
            raise SettingError("memory", self.memory, "a share; give one from 0 to below 1")
        for name, at in (("countdown", self.countdown.end), ("commit_at", self.commit_at)):
            if at == 0:
                raise HeadcountError(
                    "attrition has felt no head before the first step, so none can leave there; "
                    f"give a {name} that ends later"
                )


class Attrition(Pruner):
    """Let heads go while the model is fine-tuned, from all of them down to K.

    A group is felt as much as its heads together. In an even layout each block loses as many as the
    others, in turns: whenever the countdown passes a K that fits.

    Args:
        keep: K.
        settings: see `AttritionSettings`.
        **given: see `Pruner`.
    """

    name: ClassVar[str] = "attrition"
    settings_class: ClassVar[type[PrunerSettings]] = AttritionSettings
    settings: AttritionSettings
    felt: Tensor
    left_at: Tensor
    portion: Tensor

    def prepare(self, number: int) -> None:
        """All heads are there, and none was felt yet."""
        # Never changed: it is there for the gradient to pass.
        self.open = nn.Parameter(torch.ones(number, dtype=torch.float64))
        self.register_buffer("felt", torch.zeros(number, dtype=torch.float64))
        # The step in which a head left; those that are there have none.
        self.register_buffer("left_at", torch.full((number,), torch.inf, dtype=torch.float64))
        # How much of the block's norm is that of the heads that are there, for each head.
        self.register_buffer("portion", torch.ones(number, dtype=torch.float64))

    def begin_step(self, step: int, total_steps: int) -> None:
        """Let go of as many heads as have to by now."""
        choosing = self.choosing_steps(total_steps)
        if not choosing:
            raise HeadcountError(
                f"attrition has felt no head before the first step, but commit_at, "
                f"{self.settings.commit_at} of {total_steps} steps, is there; give a later one"
            )
        count = self.settings.countdown.count(step, choosing, len(self.places), self.count)
        count = self.units.on_the_way(count)
        here = self.here()
        if int(here.sum()) > count:
            heads = self.bound()
            worth = torch.zeros(len(heads), dtype=torch.float64)
            worth[self.places] = torch.where(here, self.felt, -1.0).cpu()
            kept = choose(heads, self.scope, worth, count).kept
            stays = torch.tensor([heads.indices[place] in kept for place in self.places])
            self._let_go(here & ~stays.to(here.device), step)

    def here(self) -> Tensor:
        """Which of the scope's heads have not left."""
        return self.left_at.isinf()

    def _let_go(self, leaving: Tensor, step: int) -> None:
        # Without this the last head of a block would have the whole norm to itself, and never go.
        before = self._by_block(self.felt * self.here())
        self.left_at[leaving] = step
        after = self._by_block(self.felt * self.here())
        self.portion *= torch.where(before > 0, after / before, 1.0)

    def _by_block(self, values: Tensor) -> Tensor:
        """The norm of the values in each block, for each of its heads."""
        sizes = [block.num_heads for block in self.scope.blocks(self.bound())]
        return torch.cat([part.norm().expand(len(part)) for part in values.split(sizes)])

    def gates(self) -> Tensor:
        """1 for heads that are there, and 0 for those that left; their gradient is noted."""
        gates = self.open * self.here()
        if gates.requires_grad:
            gates.register_hook(self._note)
        return gates

    def _note(self, gradient: Tensor) -> None:
        here = self.here()
        sizes = gradient.detach().abs() * here
        if not sizes.isfinite().all():
            return  # an overflow of mixed precision, whose step is not taken either
        if self.settings.balance:
            sizes = sizes / self._by_block(sizes).clamp(min=1e-300) * self.portion
        # What was felt of heads that left stays as it was, whether they are cut yet or not.
        self.felt.copy_(
            torch.where(here, self.felt.lerp(sizes, 1 - self.settings.memory), self.felt)
        )

    def importance(self) -> Tensor:
        """What was felt of each head; those that left come after all others, the first last."""
        return torch.where(self.here(), 1.0 + self.felt, -1.0 / (1.0 + self.left_at))

    def lasting(self, step: int, total_steps: int) -> HeadMask | None:
        """The heads that have not left."""
        final = super().lasting(step, total_steps)
        if final is not None or not self.settings.shed:
            return final
        heads, here = self.bound(), self.here().tolist()
        left = {place for place, stays in zip(self.places, here, strict=True) if not stays}
        staying = (index for place, index in enumerate(heads.indices) if place not in left)
        return HeadMask.from_indices(heads, staying)

    @property
    def cuts_while_training(self) -> bool:
        """Whether heads are cut before the training ends."""
        return self.settings.shed or super().cuts_while_training

    def signature(self) -> list[str]:
        """When heads leave."""
        return [*super().signature(), f"countdown:{self.settings.countdown}"]
