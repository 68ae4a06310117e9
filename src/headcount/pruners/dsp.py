"""Differentiable subset pruning (Li, Cotterell and Sachan 2021): Gumbel soft top-K, annealed.

Joint: the model is fine-tuned while its heads are chosen. Pipelined: the model is frozen and only
the head weights w are learned.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from headcount.batch import Batch
from headcount.heads.find import find_heads
from headcount.heads.mask import HeadMask
from headcount.pruners.base import Needs, Pruner
from headcount.pruners.choice import Keep, standardised
from headcount.pruners.dsp_settings import DSPSettings, PipelinedDSPSettings, shallow
from headcount.pruners.michel import importance
from headcount.pruners.poisson import drawn_subset, inclusion
from headcount.pruners.settings import PrunerSettings
from headcount.pruners.top_k import drawn_count, gumbel_noise, hard_top_k, soft_top_k

RISK = 0.01  # of shedding a head that the noise would have selected once more, all heads together
LOOKED_AT = 512  # training examples, for w to start from Michel's scores
LEAST = 1e-6  # of the largest score: what a head starts from that the loss does not feel at all


class JointDSP(Pruner):
    """Choose K heads while the model is fine-tuned.

    With several K, as in `JointDSP([48, 24, 12, 6])`, each training step is for one of them, and
    one run gives a mask for each: `masks()`. They are nested, because all are read from one w.

    Args:
        keep: K, or several.
        settings: how w is learned, or the name of a preset: `default`, `paper-bert`,
            `paper-encdec`.
        **given: see `Pruner`.
    """

    name: ClassVar[str] = "joint-dsp"
    settings_class: ClassVar[type[PrunerSettings]] = DSPSettings
    takes_many: ClassVar[bool] = True
    settings: DSPSettings
    w: nn.Parameter

    def __init__(
        self, keep: Keep, settings: PrunerSettings | str | None = None, **given: Any
    ) -> None:
        super().__init__(keep, settings, **given)
        self._temperature = self.settings.annealing.start
        self.progress = 0.0
        self.noise: Tensor | None = None
        self.step = 0

    def prepare(self, number: int) -> None:
        """Draw the first w."""
        self.step_count = self.count
        generator = torch.Generator().manual_seed(self.seed)
        start = torch.rand(len(self.units), generator=generator, dtype=torch.float64)
        self.w = nn.Parameter((2 * start - 1) * self.settings.spread)

    @property
    def looks_at(self) -> int:
        """Examples that w is to start from."""
        return LOOKED_AT if self.settings.first == "michel" else 0

    def look(self, model: nn.Module, batches: Iterable[Batch]) -> None:
        """Start w from Michel's scores: an importance is exp(w).

        `PruningTrainer` calls it; in a loop of your own, do so before the pruner is attached.
        """
        heads = find_heads(model)
        self.bind(heads)
        scores = importance(model, heads, HeadMask.all(heads), batches)[self.places]
        scores = self.units.total(scores)
        # No head at all may be felt, where the loss has no gradient.
        logs = scores.clamp(min=max(LEAST * float(scores.max()), 1e-300)).log()
        self.w.data.copy_(logs - logs.mean())

    def begin_step(self, step: int, total_steps: int) -> None:
        """Set the temperature, and draw this step's noise and K."""
        annealing = self.settings.annealing
        choosing = self.choosing_steps(total_steps)
        self._temperature = annealing.temperature(step, choosing)
        self.progress = annealing.progress(step, choosing)
        self.noise, self.step = gumbel_noise(len(self.w), self.seed, step), step
        self.step_count = drawn_count(self.counts, self.seed, step)
        if self.settings.countdown is not None:
            count = self.settings.countdown.count(step, choosing, len(self.places), self.step_count)
            self.step_count = self.units.on_the_way(count)

    def logits(self) -> Tensor:
        """The log-importances: w, or w brought to the scale of this stage in each pool."""
        if self.settings.scale is None:
            return self.w
        first, last = self.settings.scale
        scale = first * (last / first) ** self.progress
        return torch.cat([_scaled(self.w[pool], scale) for pool in self.units.pools])

    def gates(self) -> Tensor:
        """Eq. 14-19, with this step's noise, temperature and K.

        There is one gate for each unit, which all its heads have. In an even layout the soft top-K
        is that of each block, with as many open gates as the block keeps at the end.
        """
        noise = None if self.noise is None else self.noise.to(self.w.device)
        logits, left = self.logits(), self._left()
        pools: Sequence[slice | Tensor] = self.units.pools if left is None else left
        parts = []
        for number, quota in enumerate(self.units.quotas(self.step_count)):
            own = None if noise is None else noise[pools[number]]
            parts.append(self._chosen(logits[pools[number]], own, quota, number))
        gates = torch.cat(parts)
        if left is not None:  # heads that were cut take no part any more
            gates = torch.zeros_like(logits).index_put((torch.cat(left),), gates)
        gates = self.units.spread(gates)
        if self.settings.balance:
            gates = self.balanced(gates)
        return gates.clamp(max=1.0) if self.settings.clamp else gates

    def _chosen(self, logits: Tensor, noise: Tensor | None, count: int, pool: int) -> Tensor:
        """Gates of the units of a pool with these logits."""
        temperature = self._temperature
        if self.settings.relaxation == "poisson":
            soft = inclusion(logits, count, temperature)
            if not self.settings.hard:
                return soft
            hard = drawn_subset(logits, count, temperature, self.seed, self.step, pool)
        else:
            soft = soft_top_k(logits, count, temperature, noise)
            if not self.settings.hard:
                return soft
            hard = hard_top_k(logits if noise is None else logits + noise, count)
        return hard + soft - soft.detach()

    def _left(self) -> list[Tensor] | None:
        """Which of w belong to heads that were not cut, in each pool; None for all."""
        if self.present is None:
            return None
        indices, kept = self.bound().indices, self.present.kept
        here = torch.tensor([float(indices[place] in kept) for place in self.places])
        stays, units = self.units.total(here) > 0, torch.arange(len(self.w))
        return [units[pool][stays[pool]].to(self.w.device) for pool in self.units.pools]

    @property
    def cuts_while_training(self) -> bool:
        """Whether heads may be cut before the training ends."""
        return super().cuts_while_training or self.settings.shed

    def lasting(self, step: int, total_steps: int) -> HeadMask | None:
        """The heads that can still be kept at the end; None for all.

        When the cooldown is over, gates are hard, and w moves only where the noise lets a closed
        head overtake a kept one. The difference of two Gumbel variables is logistic. So with
        logits l that happens with probability σ(l_closed − l_kept) in a step. Summed over the kept
        heads and the steps that are left, this bounds the chance that a head is ever selected
        again. Where it is negligible, the head gets no gradient any more, and will not return.
        """
        final = super().lasting(step, total_steps)
        choosing = self.choosing_steps(total_steps)
        cooling = self.settings.annealing.progress(step, choosing) < 1
        counting = self.settings.countdown is not None and step < (
            self.settings.countdown.end * choosing
        )
        if final is not None or not self.settings.shed or cooling or counting:
            return final
        heads = self.bound()
        mask = self.mask(self.counts[0])
        kept = torch.tensor([heads.indices[place] in mask.kept for place in self.places])
        chance = (total_steps - step) * self._overtakes(kept)
        open_still = [
            heads.indices[place]
            for place, risk in zip(self.places, self.units.spread(chance).tolist(), strict=True)
            if risk > RISK / len(self.w)
        ]
        return mask | HeadMask.from_indices(heads, open_still)

    def _overtakes(self, kept: Tensor) -> Tensor:
        """How many of the kept units each unit is expected to overtake in a step, in its pool."""
        logits, stays = self.logits().detach(), self.units.total(kept.double()) > 0
        parts = []
        for pool in self.units.pools:
            own = logits[pool]
            parts.append(torch.sigmoid(own[:, None] - own[stays[pool]][None]).sum(dim=1))
        return torch.cat(parts)

    @property
    def counts(self) -> tuple[int, ...]:
        """Every K that is trained for, the largest first."""
        assert self.keep is not None
        return self.scope.counts(self.bound(), self.keep)

    def masks(self) -> dict[int, HeadMask]:
        """The mask of every K, the largest first; each holds all that follow."""
        return {count: self.mask(count) for count in self.counts}

    def importance(self) -> Tensor:
        """W itself, one for each head or group: the most important has the largest."""
        return self.units.spread(self.w)

    def parameter_groups(self) -> list[dict[str, Any]]:
        """W with its own learning rate and no weight decay."""
        return [{"params": [self.w], "lr": self.settings.learning_rate, "weight_decay": 0.0}]

    @property
    def temperature(self) -> float:
        """Of this step's gates."""
        return self._temperature

    def signature(self) -> list[str]:
        """What differs from the paper's gates, and the temperatures."""
        settings = self.settings
        parts = [word for word in ("shed", "hard") if getattr(settings, word)]
        for name, usual in (("relaxation", "gumbel"), ("first", "random")):
            if getattr(settings, name) != usual:
                parts.append(f"{name}:{getattr(settings, name)}")
        if settings.countdown is not None:
            parts.append(f"countdown:{settings.countdown}")
        tau = f"tau:{settings.annealing.start:g}>{settings.annealing.end:g}"
        return [*super().signature(), *parts, tau]


def _scaled(w: Tensor, scale: float) -> Tensor:
    """W of a pool at that scale; one that is alone stays as it is."""
    return standardised(w, scale) if len(w) > 1 else w


class PipelinedDSP(JointDSP):
    """Choose K heads of a model that is already fine-tuned; all of it except w is frozen.

    Args:
        keep: K, or several.
        settings: `DSPSettings` or `PipelinedDSPSettings`, or the name of a preset.
        **given: see `Pruner`.
    """

    name: ClassVar[str] = "pipelined-dsp"
    settings_class: ClassVar[type[PrunerSettings]] = PipelinedDSPSettings
    needs: ClassVar[Needs] = "gate training"
    withheld: ClassVar[tuple[str, ...]] = ("freeze",)
    settings: PipelinedDSPSettings

    def __init__(
        self, keep: Keep, settings: PrunerSettings | str | None = None, **given: Any
    ) -> None:
        if isinstance(settings, DSPSettings) and not isinstance(settings, PipelinedDSPSettings):
            settings = PipelinedDSPSettings(**{**shallow(settings), "freeze": ("*",)})
        super().__init__(keep, settings, **given)
