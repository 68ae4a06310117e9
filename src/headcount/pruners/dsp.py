"""Differentiable subset pruning (Li, Cotterell and Sachan 2021): Gumbel soft top-K, annealed.

Joint: the model is fine-tuned while its heads are chosen. Pipelined: the model is frozen and only
the head weights w are learned.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import torch
from torch import Tensor, nn

from headcount.errors import HeadcountError
from headcount.heads.find import find_heads
from headcount.heads.mask import HeadMask
from headcount.pruners.base import Pruner
from headcount.pruners.choice import Keep, standardised
from headcount.pruners.michel import Batch, importance
from headcount.pruners.poisson import drawn_subset, inclusion
from headcount.pruners.schedule import Annealing, Countdown
from headcount.pruners.top_k import drawn_count, gumbel_noise, hard_top_k, soft_top_k

Relaxation = Literal["gumbel", "poisson"]
First = Literal["random", "michel"]
RISK = 0.01  # of shedding a head that the noise would have selected once more, all heads together
WARM_TO_COLD = Annealing(2.0, 1e-2, 0.7)
LOOKED_AT = 512  # training examples, for w to start from Michel's scores
LEAST = 1e-6  # of the largest score: what a head starts from that the loss does not feel at all


@dataclass(frozen=True)
class DSPSettings:
    """How w is started, learned and annealed.

    The defaults are made for trainings of any length: the papers' settings move w so fast that in
    a short training the choice is made by drift before the temperature has fallen.

    Attributes:
        annealing: the course of the temperature; with `commit_at`, within the time until then.
        learning_rate: of w, in an optimizer of Adam's kind.
        spread: w starts uniformly between minus and plus this.
        first: what w starts from: `random`, or `michel`, the log of the scores that `Michel` gives
            the model as it is, which is worth something where it is fine-tuned already.
        scale: standard deviation of the logits at the start and at the end of the cooldown,
            whatever w has grown to; the noise's is 1.28. None leaves w as it is (the paper).
        balance: divide the gates' gradient by its norm in each block, so that layers are compared
            fairly. False leaves it as it is (the paper).
        clamp: cut gates above 1 to 1. The relaxed gates of the paper may exceed 1.
        decay: w's learning rate follows the trainer's schedule; False keeps it constant.
        clip: largest norm of w's gradient, clipped apart from the model's by the trainer; None
            leaves it as it is. `with-model` clips both together at the trainer's `max_grad_norm`,
            so that a large gradient of w shrinks that step of the model too (the paper's BERT).
        shed: let a `PruningTrainer` cut heads that cannot come back, once the cooldown is over;
            see `JointDSP.lasting`.
        relaxation: what the soft gates are: `gumbel`, the paper's soft top-K of noisy logits, or
            `poisson`, the probabilities of being among the K (see `pruners.poisson`).
        hard: multiply by a set of K heads that is drawn in each step, with the soft gates' gradient
            behind it, so that training sees what evaluation will.
        countdown: begin with all heads and fall to K; None has K from the start (the paper).
    """

    annealing: Annealing = WARM_TO_COLD
    learning_rate: float = 0.05
    spread: float = 0.05
    scale: tuple[float, float] | None = (1.0, 10.0)
    balance: bool = True
    clamp: bool = False
    decay: bool = True
    clip: float | Literal["with-model"] | None = 1.0
    shed: bool = False
    relaxation: Relaxation = "gumbel"
    hard: bool = False
    countdown: Countdown | None = None
    first: First = "random"

    def __post_init__(self) -> None:
        for what, said, able in (
            ("relaxation", self.relaxation, get_args(Relaxation)),
            ("first", self.first, get_args(First)),
        ):
            if said not in able:
                raise HeadcountError(f"there is no {what} {said!r}; choose {' or '.join(able)}")
        if not isinstance(self.annealing, Annealing):
            raise HeadcountError(
                f"annealing is {self.annealing!r}, expected an Annealing; give one, its cooldown "
                "None to stay at its start"
            )
        if self.scale is not None and not (
            isinstance(self.scale, tuple) and len(self.scale) == 2 and min(self.scale) > 0
        ):
            raise HeadcountError(
                f"scale is {self.scale!r}, expected two numbers above 0, the first and the last; "
                "give them, or none to leave w as it is"
            )
        if isinstance(self.clip, str) and self.clip != "with-model":
            raise HeadcountError(
                f"clip is {self.clip!r}, expected a number, with-model or none; give one of them"
            )


# The papers' settings, which were tuned for about 37,000 and 66,000 steps (Table 2 and the code).
PRESETS = {
    "default": DSPSettings(),
    "paper-bert": DSPSettings(
        Annealing(1000.0, 1e-8, 25_000), 0.5, 0.5, scale=None, balance=False, clip="with-model"
    ),
    "paper-encdec": DSPSettings(
        Annealing(0.1, 1e-8, 15_000), 0.2, 0.522, scale=None, balance=False, decay=False, clip=None
    ),
}


class JointDSP(Pruner):
    """Choose K heads while the model is fine-tuned.

    With several K, as in `JointDSP([48, 24, 12, 6])`, each training step is for one of them, and
    one run gives a mask for each: `masks()`. They are nested, because all are read from one w.

    Args:
        keep: K, or several.
        settings: how w is learned, or the name of a preset: `default`, `paper-bert`,
            `paper-encdec`.
        **scope: see `Pruner`.
    """

    name: ClassVar[str] = "joint-dsp"
    takes_many: ClassVar[bool] = True
    w: nn.Parameter

    def __init__(self, keep: Keep, settings: DSPSettings | str = "default", **scope: Any) -> None:
        super().__init__(keep, **scope)
        if isinstance(settings, str) and settings not in PRESETS:
            raise HeadcountError(
                f"there is no preset {settings!r}; choose one of {', '.join(PRESETS)}"
            )
        self.settings = PRESETS[settings] if isinstance(settings, str) else settings
        self.temperature = self.settings.annealing.start
        self.progress = 0.0
        self.noise: Tensor | None = None
        self.step = 0

    def prepare(self, number: int) -> None:
        """Draw the first w."""
        self.step_count = self.count
        generator = torch.Generator().manual_seed(self.seed)
        start = torch.rand(number, generator=generator, dtype=torch.float64)
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
        # No head at all may be felt, where the loss has no gradient.
        logs = scores.clamp(min=max(LEAST * float(scores.max()), 1e-300)).log()
        self.w.data.copy_(logs - logs.mean())

    def begin_step(self, step: int, total_steps: int) -> None:
        """Set the temperature, and draw this step's noise and K."""
        annealing = self.settings.annealing
        choosing = self.choosing_steps(total_steps)
        self.temperature = annealing.temperature(step, choosing)
        self.progress = annealing.progress(step, choosing)
        self.noise, self.step = gumbel_noise(len(self.w), self.seed, step), step
        self.step_count = drawn_count(self.counts, self.seed, step)
        if self.settings.countdown is not None:
            self.step_count = self.settings.countdown.count(
                step, choosing, len(self.w), self.step_count
            )

    def logits(self) -> Tensor:
        """The log-importances: w, or w brought to the scale of this stage."""
        if self.settings.scale is None or len(self.w) == 1:
            return self.w
        first, last = self.settings.scale
        scale = first * (last / first) ** self.progress
        return standardised(self.w, scale)

    def gates(self) -> Tensor:
        """Eq. 14-19, with this step's noise, temperature and K."""
        noise = None if self.noise is None else self.noise.to(self.w.device)
        logits, here = self.logits(), self._here()
        if here is None:
            gates = self._chosen(logits, noise)
        else:  # heads that were cut take no part any more
            noise = None if noise is None else noise[here]
            gates = torch.zeros_like(logits).index_put((here,), self._chosen(logits[here], noise))
        if self.settings.balance:
            gates = self.balanced(gates)
        return gates.clamp(max=1.0) if self.settings.clamp else gates

    def _chosen(self, logits: Tensor, noise: Tensor | None) -> Tensor:
        """Gates of heads with these logits."""
        count, temperature = self.step_count, self.temperature
        if self.settings.relaxation == "poisson":
            soft = inclusion(logits, count, temperature)
            if not self.settings.hard:
                return soft
            hard = drawn_subset(logits, count, temperature, self.seed, self.step)
        else:
            soft = soft_top_k(logits, count, temperature, noise)
            if not self.settings.hard:
                return soft
            hard = hard_top_k(logits if noise is None else logits + noise, count)
        return hard + soft - soft.detach()

    def _here(self) -> Tensor | None:
        """Which of w belong to heads that were not cut; None for all."""
        if self.present is None:
            return None
        indices, kept = self.bound().indices, self.present.kept
        left = [n for n, place in enumerate(self.places) if indices[place] in kept]
        return torch.tensor(left, device=self.w.device)

    @property
    def cuts_while_training(self) -> bool:
        """Whether heads may be cut before the training ends."""
        return super().cuts_while_training or self.settings.shed

    def lasting(self, step: int, total_steps: int) -> HeadMask | None:
        """The heads that can still be kept at the end; None for all.

        When the cooldown is over, gates are hard, and w moves only where the noise lets a closed
        head overtake a kept one: the difference of two Gumbel variables is logistic, so with
        logits l that happens with probability σ(l_closed − l_kept) in a step. Summed over the kept
        heads and the steps that are left this bounds the chance that a head is ever selected
        again; where it is negligible, the head gets no gradient any more, and will not return.
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
        logits = self.logits().detach()
        kept = torch.tensor([heads.indices[place] in mask.kept for place in self.places])
        overtakes = torch.sigmoid(logits[:, None] - logits[kept][None]).sum(dim=1)
        chance = (total_steps - step) * overtakes
        open_still = [
            heads.indices[place]
            for place, risk in zip(self.places, chance.tolist(), strict=True)
            if risk > RISK / len(self.places)
        ]
        return mask | HeadMask.from_indices(heads, open_still)

    @property
    def counts(self) -> tuple[int, ...]:
        """Every K that is trained for, the largest first."""
        assert self.keep is not None
        return self.scope.counts(self.bound(), self.keep)

    def masks(self) -> dict[int, HeadMask]:
        """The mask of every K, the largest first; each holds all that follow."""
        return {count: self.mask(count) for count in self.counts}

    def importance(self) -> Tensor:
        """W itself: the most important head has the largest."""
        return self.w

    def parameter_groups(self) -> list[dict[str, Any]]:
        """W with its own learning rate and no weight decay."""
        return [{"params": [self.w], "lr": self.settings.learning_rate, "weight_decay": 0.0}]


class PipelinedDSP(JointDSP):
    """Choose K heads of a model that is already fine-tuned; all of it but w is frozen."""

    name: ClassVar[str] = "pipelined-dsp"

    def __init__(self, keep: Keep, settings: DSPSettings | str = "default", **scope: Any) -> None:
        super().__init__(keep, settings, freeze=("*",), **scope)
        if self.cuts_while_training:
            raise HeadcountError(
                "pipelined DSP trains nothing but its choice, so that there is nothing to train "
                "on once heads are cut; leave out commit_at and shed"
            )
