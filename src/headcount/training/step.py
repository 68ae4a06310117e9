"""One optimizer step of a pruner, however many micro-batches and processes it is made of.

The gates are the same for all micro-batches of a step, so the loss is differentiated with respect
to the gates first, summed over micro-batches and averaged over processes, and only then carried
through the pruner, once. A pruner that rescales its gates' gradient (DSP's `balance`) sees that of
the whole batch, and a penalty counts once, so 2 × 4 examples mean what 8 mean.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

from headcount.pruners.gated import Gated


class PrunerStep:
    """Gathers the gates' gradient during a step, and gives the pruner its own at the end.

    Args:
        gated: the model with the pruner's gates in place.
    """

    def __init__(self, gated: Gated) -> None:
        self.gated, self.pruner = gated, gated.pruner
        self._leaf: Tensor | None = None
        self._step: int | None = None
        gated.training_values = self.values

    def values(self) -> Tensor:
        """The gates of all heads in this step, as a leaf.

        Reentrant checkpointing goes backward block by block, which only a leaf lets it do.
        """
        if self._leaf is None:
            values = self.gated.spread(self.pruner.gates().detach())
            self._leaf = values.requires_grad_(self.learns)
        return self._leaf

    @property
    def learns(self) -> bool:
        """Whether there is anything to learn: not for a fixed choice."""
        return any(p.requires_grad for p in self.pruner.parameters())

    def forget(self) -> None:
        """Begin a training: its first step is a new one, whatever its number."""
        self._leaf = self._step = None

    def begin(self, step: int, total_steps: int) -> None:
        """Begin a step, at its first micro-batch; does nothing at the others."""
        if step != self._step:
            self._step, self._leaf = step, None
            self.gated.begin_step(step, total_steps)

    def finish(self, loss_scale: float = 1.0) -> None:
        """Set the gradients of the pruner's parameters, the same on every process.

        Args:
            loss_scale: what the loss was multiplied by before the backward passes (mixed
                precision); the gradients are left multiplied by it, as the model's are.
        """
        parameters = [p for p in self.pruner.parameters() if p.requires_grad]
        if not parameters:
            return
        values = self.values()
        felt = torch.zeros_like(values) if values.grad is None else values.grad / loss_scale
        felt = self.gated.gather(felt)
        if dist.is_available() and dist.is_initialized():
            dist.all_reduce(felt)
            felt /= dist.get_world_size()
        # Its gradient with respect to the gates is the gathered one.
        stand_in = (self.pruner.gates() * felt).sum() + self.pruner.penalty()
        gradients = torch.autograd.grad(stand_in, parameters, allow_unused=True)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = None if gradient is None else gradient * loss_scale
