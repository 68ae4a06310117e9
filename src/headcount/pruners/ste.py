"""The straight-through estimator: hard top-K forward, the identity backward.

The DSP paper's ablation of its soft top-K. All of w gets the gates' gradient, kept or not.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from headcount.pruners.base import Pruner
from headcount.pruners.choice import standardised
from headcount.pruners.schedule import Annealing
from headcount.pruners.subset import gumbel_noise, hard_top_k

# The deviation of w that the noise (its own is 1.28) is added to: most choices are tried early,
# and only the best is left late.
SHARPENING = Annealing(1.0, 10.0, 0.7)


class STE(Pruner):
    """Choose K heads while the model is fine-tuned, with hard gates all the time.

    The defaults are made for trainings of any length; the paper's estimator for 37,000 steps is
    `STE(keep, learning_rate=0.5, spread=0.5, noise=False, balance=False)`.

    Args:
        keep: K.
        learning_rate: of w, in an optimizer of Adam's kind.
        spread: w starts uniformly between minus and plus this.
        noise: choose by w with Gumbel noise that loses weight as the training goes on. Without
            it (the paper) a choice is judged only next to the heads that w happened to start with.
        balance: divide the gates' gradient by its norm in each block, so that layers are compared
            fairly. False leaves it as it is (the paper).
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
        noise: bool = True,
        balance: bool = True,
        **scope: Any,
    ) -> None:
        super().__init__(keep, **scope)
        self.learning_rate, self.spread = learning_rate, spread
        self.explore, self.balance = noise, balance
        self.noise: Tensor | None = None
        self.scale = SHARPENING.start

    def prepare(self, number: int) -> None:
        """Draw the first w."""
        generator = torch.Generator().manual_seed(self.seed)
        start = torch.rand(number, generator=generator, dtype=torch.float64)
        self.w = nn.Parameter((2 * start - 1) * self.spread)

    def begin_step(self, step: int, total_steps: int) -> None:
        """Draw this step's noise, and set what w weighs against it."""
        if self.explore:
            self.noise = gumbel_noise(len(self.w), self.seed, step)
            self.scale = SHARPENING.temperature(step, total_steps)

    def gates(self) -> Tensor:
        """Exactly K ones, with the gradient of w itself."""
        ranking = self.w.detach()
        if self.noise is not None:
            ranking = standardised(ranking, self.scale) + self.noise.to(ranking.device)
        gates = hard_top_k(ranking, self.count) + self.w - self.w.detach()
        return self.balanced(gates) if self.balance else gates

    def importance(self) -> Tensor:
        """W itself."""
        return self.w

    def parameter_groups(self) -> list[dict[str, Any]]:
        """W with its own learning rate and no weight decay."""
        return [{"params": [self.w], "lr": self.learning_rate, "weight_decay": 0.0}]
