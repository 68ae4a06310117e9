"""The straight-through estimator: hard top-K forward, the identity backward; no noise.

The DSP paper's ablation of its soft top-K. All of w gets the gates' gradient, kept or not.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from headcount.pruners.base import Pruner
from headcount.pruners.schedule import Countdown
from headcount.pruners.top_k import hard_top_k


class STE(Pruner):
    """Choose K heads while the model is fine-tuned, with hard gates all the time.

    The defaults are made for trainings of any length; the paper's estimator for 37,000 steps is
    `STE(keep, learning_rate=0.5, spread=0.5, balance=False)`.

    Args:
        keep: K.
        learning_rate: of w, in an optimizer of Adam's kind.
        spread: w starts uniformly between minus and plus this.
        balance: divide the gates' gradient by its norm in each block, so that layers are compared
            fairly. False leaves it as it is (the paper).
        countdown: begin with all heads and fall to K; None has K from the start (the paper).
        **scope: see `Pruner`.
    """

    name: ClassVar[str] = "ste"
    w: nn.Parameter

    def __init__(
        self,
        keep: int | float,
        learning_rate: float = 0.05,
        spread: float = 0.05,
        *,
        balance: bool = True,
        countdown: Countdown | None = None,
        **scope: Any,
    ) -> None:
        super().__init__(keep, **scope)
        self.countdown = countdown
        self.learning_rate, self.spread = learning_rate, spread
        self.balance = balance

    def prepare(self, number: int) -> None:
        """Draw the first w."""
        self.step_count = self.count
        generator = torch.Generator().manual_seed(self.seed)
        start = torch.rand(number, generator=generator, dtype=torch.float64)
        self.w = nn.Parameter((2 * start - 1) * self.spread)

    def begin_step(self, step: int, total_steps: int) -> None:
        """Set how many heads this step has."""
        if self.countdown is not None:
            choosing = self.choosing_steps(total_steps)
            self.step_count = self.countdown.count(step, choosing, len(self.w), self.count)

    def gates(self) -> Tensor:
        """Exactly K ones, with the gradient of w itself."""
        gates = hard_top_k(self.w.detach(), self.step_count) + self.w - self.w.detach()
        return self.balanced(gates) if self.balance else gates

    def importance(self) -> Tensor:
        """W itself."""
        return self.w

    def parameter_groups(self) -> list[dict[str, Any]]:
        """W with its own learning rate and no weight decay."""
        return [{"params": [self.w], "lr": self.learning_rate, "weight_decay": 0.0}]
