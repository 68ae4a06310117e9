"""Hard-concrete gates with an L0 penalty (Louizos et al. 2018, as Voita et al. 2019 use them).

Each gate is stretched and clipped noise around a learned log α (Louizos et al., eq. 10-12). The
loss is that of the model plus λ times the expected number of open gates (eq. 22 and 23 of the DSP
paper).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from headcount.errors import HeadcountError
from headcount.heads.mask import HeadMask
from headcount.pruners.base import Pruner
from headcount.pruners.choice import Keep
from headcount.pruners.settings import LearnedSettings, PrunerSettings, named
from headcount.pruners.top_k import gumbel_noise

BETA, LOW, HIGH = 0.33, -0.1, 1.1  # Louizos' temperature and the ends of the stretched interval
SHIFT = BETA * math.log(
    -LOW / HIGH
)  # P(open) is the sigmoid of log α − SHIFT (Louizos et al., eq. 12)
# What follows is relative to balanced gradients, whose norm in a block is 1.
LAMBDA = 0.1  # closes heads whose gradient averages out, and no head that is missed all the time
STEERING, STIFFNESS = 5.0, 0.15  # of λ per head in excess in a whole training, and of the square
NARROW, WIDE = 2.5, 8.0  # the bounds of log α at the start and at the end


def wanted_count(progress: float, first: float, keep: int) -> float:
    """The count that is steered for: by equal factors from the first to K in half the training."""
    return float(keep * (first / keep) ** max(0.0, 1.0 - 2.0 * progress))


@dataclass(frozen=True)
class HardConcreteSettings(LearnedSettings):
    """What an open head costs, and how log α is learned.

    Attributes:
        penalty_weight: price of an open head in the mean loss (λ). A higher one closes more heads.
            The DSP paper has 0.0015 for BERT. None takes one that suits any loss. With `steer` it
            is where the controller starts.
        steer: beyond the papers: let λ follow the excess of heads until K are expected to be open.
            This is an augmented Lagrangian, in which the wanted count falls to K. None steers if
            there is a keep and no λ.
        learning_rate: learning rate of log α. Voita et al. take that of the model.
        start: log α of every head at the start. None is 0.5 without steering. With steering it is
            the value at which half of the heads (or K, if that is more) are expected to be open:
            with all open, a head's worth is hidden by the others. The papers' code starts at random
            around 0, where half of the heads are below the cut already. Far above 1 the gates are
            stuck at 1, and only the penalty moves them.
    """

    penalty_weight: float | None = field(default=None, metadata=named("lambda"))
    steer: bool | None = None
    learning_rate: float = 0.1
    start: float | None = None


class HardConcrete(Pruner):
    """Close heads that do not earn a penalty of λ each.

    If you give no λ, three things differ from the papers. The gates' gradient is divided by its
    norm in each block, so that λ means the same for every model, loss and layer. Log α is kept
    within bounds that widen as the training goes on, because a gate far outside is stuck and gets
    no gradient that could bring it back. In keep mode λ is steered. With `penalty_weight` all is as
    in the papers: add `learning_rate=0.1`, and for Voita et al. that of the model.

    A group has one gate, which costs λ for each of its heads. In an even layout λ is steered in
    each block by itself, towards the heads that the block keeps. A λ that is not steered knows
    nothing of layers: there the choice alone is even. In λ mode the number of open gates is then
    rounded to the nearest K that fits, with one unit in every block at least.

    Args:
        keep: K; None for λ mode, where λ decides how many heads stay open.
        settings: see `HardConcreteSettings`; or λ alone, a number.
        **given: see `Pruner`.
    """

    name: ClassVar[str] = "hard-concrete"
    settings_class: ClassVar[type[PrunerSettings]] = HardConcreteSettings
    finds_count: ClassVar[bool] = True
    settings: HardConcreteSettings
    log_alpha: nn.Parameter

    def __init__(
        self,
        keep: Keep | None = None,
        settings: PrunerSettings | float | str | None = None,
        **given: Any,
    ) -> None:
        if isinstance(settings, int | float):
            settings, given = None, {**given, "penalty_weight": settings}
        super().__init__(keep, settings, **given)
        if self.settings.steer and keep is None:
            raise HeadcountError("there is nothing to steer for without a keep; give K")
        self.open_count = keep is None
        weight, steer = self.settings.penalty_weight, self.settings.steer
        self.steer = steer if steer is not None else weight is None and not self.open_count
        self.balance = self.steer or weight is None
        automatic = 0.0 if self.steer else LAMBDA
        self._weights = [automatic if weight is None else weight]  # λ of each pool
        self.noise: Tensor | None = None
        self._wanted = [0.0]

    @property
    def penalty_weight(self) -> float:
        """λ, what an open head costs; in an even layout that is steered the mean of the blocks'."""
        return sum(self._weights) / len(self._weights)

    @classmethod
    def finds_own_count(cls, settings: PrunerSettings) -> bool:
        """With a λ that is not steered: as many heads stay as earn it."""
        given = isinstance(settings, HardConcreteSettings) and settings.penalty_weight is not None
        return given and not getattr(settings, "steer", None)

    def prepare(self, number: int) -> None:
        """Open every gate equally."""
        if self.steer and len(self._weights) == 1:
            self._weights *= len(self.units.pools)
        self.first = max(number / 2, float(self.count))
        start = self.settings.start
        if start is None:
            # The bound is for K = all heads, whose log α would be infinite.
            odds = self.first / max(number - self.first, 1e-9)
            start = min(math.log(odds) + SHIFT, NARROW) if self.steer else 0.5
        self.log_alpha = nn.Parameter(torch.full((len(self.units),), start, dtype=torch.float64))

    def begin_step(self, step: int, total_steps: int) -> None:
        """Draw this step's noise, bound log α, and steer λ towards the wanted count."""
        if self.committed is not None:
            return
        choosing = max(self.choosing_steps(total_steps), 1)
        # The difference of two Gumbel variables is logistic: log u − log(1 − u).
        size = len(self.log_alpha)
        self.noise = gumbel_noise(size, self.seed, 2 * step) - gumbel_noise(
            size, self.seed, 2 * step + 1
        )
        if self.balance:
            bound = NARROW + (WIDE - NARROW) * step / choosing
            self.log_alpha.data.clamp_(-bound, bound)
        if self.steer:
            wanted = wanted_count(step / choosing, self.first, self.count)
            self._wanted = [wanted * share for share in self.units.shares]
            for pool, excess in enumerate(self._excess()):
                relative = float(excess.detach()) / self.units.shares[pool]
                self._weights[pool] += STEERING / choosing * relative

    def gates(self) -> Tensor:
        """A stretched and clipped concrete sample per head, or per group."""
        noise = 0.0 if self.noise is None else self.noise.to(self.log_alpha.device)
        sample = torch.sigmoid((noise + self.log_alpha) / BETA)
        gates = self.units.spread((sample * (HIGH - LOW) + LOW).clamp(0.0, 1.0))
        return self.balanced(gates) if self.balance else gates

    def expected_count(self) -> Tensor:
        """Eq. 22: the expected number of heads whose gates are not exactly zero."""
        return self._expected().sum()

    def _expected(self) -> Tensor:
        """The expected number of open heads of each unit."""
        return torch.sigmoid(self.log_alpha - SHIFT) * self.units.weights.to(self.log_alpha.device)

    def _excess(self) -> list[Tensor]:
        """By how much the expected count of each pool is above the wanted one."""
        expected = self._expected()
        pools = zip(self.units.pools, self._wanted, strict=True)
        return [expected[pool].sum() - wanted for pool, wanted in pools]

    def penalty(self) -> Tensor:
        """Eq. 23: λ times the expected count; when steered, of what exceeds the wanted count.

        The quadratic term makes too few open heads as costly as too many, so that heads which
        were closed too early open again. An excess counts relative to its pool, so that a block of
        an even layout is held as tightly as a whole model.
        """
        if not self.steer:
            return self.penalty_weight * self.expected_count()
        pools = zip(self._excess(), self._weights, self.units.shares, strict=True)
        costs = [
            weight * excess + STIFFNESS * excess.square() / share for excess, weight, share in pools
        ]
        return torch.stack(costs).sum()

    def importance(self) -> Tensor:
        """Log α: a gate is more likely open than closed when it is positive."""
        return self.units.spread(self.log_alpha)

    def mask(self, keep: int | float | None = None) -> HeadMask:
        """The open gates; in keep mode the smallest change of that set to exactly K (§4.3)."""
        if self.open_count:
            self.count = self.units.rounded(int((self.importance() > 0).sum()))
        return super().mask(keep)

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Log α with its own learning rate and no weight decay."""
        return [
            {"params": [self.log_alpha], "lr": self.settings.learning_rate, "weight_decay": 0.0}
        ]

    def readings(self) -> dict[str, float]:
        """How many heads are expected open, and what each costs."""
        return {
            "heads_expected": float(self.expected_count().detach()),
            "penalty_weight": self.penalty_weight,
        }

    def state(self) -> dict[str, Any]:
        """λ, which is steered; in an even layout a list with that of each block."""
        first, *others = self._weights
        return {"penalty_weight": self._weights if others else first}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take up λ where it was."""
        weights = state["penalty_weight"]
        self._weights = list(weights) if isinstance(weights, list) else [weights]

    def signature(self) -> list[str]:
        """What an open head costs."""
        said = "steered" if self.steer else f"{self.penalty_weight:g}"
        return [*super().signature(), f"lambda:{said}"]
