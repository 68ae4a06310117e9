"""Attrition: heads leave one after another while the model trains, and none is replaced.

The heads that leave are those whose gates the loss has felt least, by a running mean of what Michel
et al. measure once: the absolute gradient of the gate, with every block's divided by its norm. The
model trains all the time, so that what is left takes over what leaves.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from headcount.errors import HeadcountError
from headcount.pruners.base import Pruner
from headcount.pruners.choice import choose, normalised_by_block
from headcount.pruners.schedule import Countdown

FALLING = Countdown()


class Attrition(Pruner):
    """Let heads go while the model is fine-tuned, from all of them down to K.

    Args:
        keep: K.
        countdown: when they go.
        memory: share of the running mean that a step leaves as it is.
        balance: divide the gates' gradient by its norm in each block, so that layers are compared
            fairly.
        **scope: see `Pruner`.
    """

    name: ClassVar[str] = "attrition"
    felt: Tensor
    left_at: Tensor

    def __init__(
        self,
        keep: int | float,
        *,
        countdown: Countdown = FALLING,
        memory: float = 0.98,
        balance: bool = True,
        **scope: Any,
    ) -> None:
        if not 0 <= memory < 1:
            raise HeadcountError(
                f"memory is {memory}, expected a share; give one from 0 to below 1"
            )
        super().__init__(
            keep, **{"commit_at": countdown.end if countdown.end < 1 else None, **scope}
        )
        self.countdown, self.memory, self.balance = countdown, memory, balance

    def prepare(self, number: int) -> None:
        """All heads are there, and none was felt yet."""
        # Never changed: it is there for the gradient to pass.
        self.open = nn.Parameter(torch.ones(number, dtype=torch.float64))
        self.register_buffer("felt", torch.zeros(number, dtype=torch.float64))
        # The step in which a head left; those that are there have none.
        self.register_buffer("left_at", torch.full((number,), torch.inf, dtype=torch.float64))

    def begin_step(self, step: int, total_steps: int) -> None:
        """Let go of as many heads as have to by now."""
        count = self.countdown.count(step, total_steps, len(self.places), self.count)
        here = self.left_at.isinf()
        if int(here.sum()) > count:
            heads = self.bound()
            worth = torch.zeros(len(heads), dtype=torch.float64)
            worth[self.places] = torch.where(here, self.felt, -1.0).cpu()
            kept = choose(heads, self.scope, worth, count).kept
            stays = torch.tensor([heads.indices[place] in kept for place in self.places])
            self.left_at[here & ~stays.to(here.device)] = step

    def gates(self) -> Tensor:
        """1 for heads that are there, and 0 for those that left; their gradient is noted."""
        gates = self.open * self.left_at.isinf()
        if gates.requires_grad:
            gates.register_hook(self._note)
        return gates

    def _note(self, gradient: Tensor) -> None:
        sizes = gradient.detach().abs()
        if self.balance:
            sizes = normalised_by_block(sizes, self.scope.blocks(self.bound()))
        self.felt.mul_(self.memory).add_(sizes, alpha=1 - self.memory)

    def importance(self) -> Tensor:
        """What was felt of each head; those that left come after all others, the first last."""
        here = self.left_at.isinf()
        return torch.where(here, 1.0 + self.felt, -1.0 / (1.0 + self.left_at))
