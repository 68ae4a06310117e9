"""The straight-through estimator: hard top-K forward, the identity backward; no noise.

The DSP paper's ablation of its soft top-K. All of w gets the gates' gradient, kept or not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from headcount.pruners.base import Pruner
from headcount.pruners.schedule import Countdown
from headcount.pruners.settings import LearnedSettings, PrunerSettings
from headcount.pruners.top_k import hard_top_k


@dataclass(frozen=True)
class STESettings(LearnedSettings):
    """How w is started and learned.

    The defaults suit trainings of any length. For its 37,000 steps the paper has a learning rate
    and a spread of 0.5, and no balance.

    Attributes:
        learning_rate: learning rate of w, in an optimizer like Adam. In the paper 0.5.
        spread: each w starts at a random number between minus this and this. In the paper 0.5.
        balance: divide the gates' gradient by its norm in each block, so that layers are compared
            fairly. In the paper false.
        countdown: begin with all heads and fall to K, as attrition does: start, end and power, or
            true for [0.05, 0.55, 3]. None has K heads from the start, as in the paper.
    """

    learning_rate: float = 0.05
    spread: float = 0.05
    balance: bool = True
    countdown: Countdown | None = None


class STE(Pruner):
    """Choose K heads while the model is fine-tuned, with hard gates all the time.

    Args:
        keep: K.
        settings: see `STESettings`.
        **given: see `Pruner`.
    """

    name: ClassVar[str] = "ste"
    settings_class: ClassVar[type[PrunerSettings]] = STESettings
    settings: STESettings
    w: nn.Parameter

    def prepare(self, number: int) -> None:
        """Draw the first w."""
        self.step_count = self.count
        generator = torch.Generator().manual_seed(self.seed)
        start = torch.rand(len(self.units), generator=generator, dtype=torch.float64)
        self.w = nn.Parameter((2 * start - 1) * self.settings.spread)

    def begin_step(self, step: int, total_steps: int) -> None:
        """Set how many heads this step has."""
        countdown = self.settings.countdown
        if countdown is not None:
            choosing = self.choosing_steps(total_steps)
            count = countdown.count(step, choosing, len(self.places), self.count)
            self.step_count = self.units.on_the_way(count)

    def gates(self) -> Tensor:
        """Exactly K ones, with the gradient of w itself; in an even layout the best of a block."""
        w, quotas = self.w.detach(), self.units.quotas(self.step_count)
        pools = zip(self.units.pools, quotas, strict=True)
        hard = torch.cat([hard_top_k(w[pool], quota) for pool, quota in pools])
        gates = self.units.spread(hard + self.w - w)
        return self.balanced(gates) if self.settings.balance else gates

    def importance(self) -> Tensor:
        """W itself, one for each head or group."""
        return self.units.spread(self.w)

    def parameter_groups(self) -> list[dict[str, Any]]:
        """W with its own learning rate and no weight decay."""
        return [{"params": [self.w], "lr": self.settings.learning_rate, "weight_decay": 0.0}]

    def signature(self) -> list[str]:
        """When heads leave, if they do."""
        countdown = self.settings.countdown
        return [*super().signature(), *([] if countdown is None else [f"countdown:{countdown}"])]
