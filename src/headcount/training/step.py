"""One optimizer step, from any number of micro-batches and processes: 2 × 4 examples equal 8.

The gates are the same for all micro-batches of a step. So the loss is first differentiated with
respect to the gates, summed over micro-batches and averaged over processes. Only then is it carried
through the pruner, once. A pruner that rescales its gates' gradient (DSP's `balance`) sees that of
the whole batch, and a penalty counts once.

The pruner's gradients are clipped on their own, or together with the model's as in the code of the
DSP paper's BERT. The model's loss is averaged over micro-batches, also if the model does not do it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors import safe_open
from torch import Tensor, nn
from transformers import PreTrainedModel, Trainer
from transformers.utils import SAFE_WEIGHTS_NAME

from headcount import seams
from headcount.batch import evaluating
from headcount.pruners.base import Pruner
from headcount.pruners.gated import Gated


class PrunerStep:
    """Gathers the gates' gradient during a step, and sets the pruner's gradients at the end.

    Args:
        gated: the model with the pruner's gates in place.
    """

    def __init__(self, gated: Gated) -> None:
        self.gated, self.pruner = gated, gated.pruner
        self._leaf: Tensor | None = None
        self._step: int | None = None
        gated.take_values_from(self.values)

    def values(self) -> Tensor:
        """The gates of all heads in this step, as a leaf of the graph.

        Reentrant checkpointing goes backward block by block, which only works with a leaf.
        """
        if self._leaf is None:
            values = self.gated.spread(self.pruner.gates().detach())
            self._leaf = values.requires_grad_(self.learns)
        return self._leaf

    @property
    def learns(self) -> bool:
        """Whether the pruner has anything to learn; a fixed choice has not."""
        return any(p.requires_grad for p in self.pruner.parameters())

    def forget(self) -> None:
        """Begin a training: its first step is a new one, even with the same number."""
        self._leaf = self._step = None

    def begin(self, step: int, total_steps: int) -> None:
        """Begin a step at its first micro-batch; at the others, do nothing."""
        if step != self._step:
            self._step, self._leaf = step, None
            self.gated.begin_step(step, total_steps)

    def finish(self, loss_scale: float = 1.0) -> None:
        """Set the gradients of the pruner's parameters, the same on every process.

        Args:
            loss_scale: the factor on the loss in the backward passes (mixed precision). The
                gradients stay multiplied by it, as the model's do.
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
        # The gradient of this with respect to the gates is the gathered one.
        stand_in = (self.pruner.gates() * felt).sum() + self.pruner.penalty()
        gradients = torch.autograd.grad(stand_in, parameters, allow_unused=True)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = None if gradient is None else gradient * loss_scale


def clipping_with_model(clip: Callable[..., Any], pruner: Pruner) -> Callable[..., Tensor]:
    """`Accelerator.clip_grad_norm_` for the parameters it is given and the pruner's, as one norm.

    Args:
        clip: the method itself. It handles shards and the scale of mixed precision, but not a
            parameter beside a sharded model. So it is asked for the model's norm only.
        pruner: a pruner whose gradients are the same on every process.
    """

    def together(parameters: Iterable[Tensor], max_norm: float, norm_type: float = 2) -> Tensor:
        parameters = list(parameters)
        model_norm = clip(parameters, math.inf, norm_type)
        if hasattr(model_norm, "full_tensor"):
            model_norm = model_norm.full_tensor()
        own = [p.grad for p in pruner.parameters() if p.grad is not None]
        norms = [float(model_norm), *(float(torch.norm(g, norm_type)) for g in own)]
        each = torch.tensor(norms, dtype=torch.float64)
        norm: Tensor = torch.linalg.vector_norm(each, norm_type)
        # The small number is from torch's own clipping.
        factor = min(max_norm / (float(norm) + 1e-6), 1.0)
        if factor < 1.0:
            for gradient in [*(p.grad for p in parameters if p.grad is not None), *own]:
                gradient.mul_(factor)
        return norm

    return together


class AveragingTrainer(Trainer):
    """A `Trainer` that averages over micro-batches and processes if the model does not.

    `Trainer` assumes that every model with `**kwargs` divides its loss by the number of items in
    the step, and then does not average itself. BERT's classifiers take this number and ignore it,
    so their loss would grow with the number of micro-batches and processes.
    """

    _loss_known = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        assert self.model is not None
        seams.forget_number_of_cpu(self.args)
        for parameter in self.model.parameters():
            # A block without heads has empty parameters. Several processes would wait forever for
            # their gradients.
            parameter.requires_grad_(parameter.requires_grad and parameter.numel() > 0)

    def training_step(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        num_items_in_batch: Tensor | int | None = None,
        **kwargs: Any,
    ) -> Tensor:
        """A micro-batch; the first one finds out what the model does with the number of items."""
        if not self._loss_known and num_items_in_batch is not None:
            self._learn_about_loss(model, inputs, num_items_in_batch)
        loss: Tensor = super().training_step(model, inputs, num_items_in_batch, **kwargs)
        return loss

    def _load_from_checkpoint(self, resume_from_checkpoint: str, *args: Any, **kwargs: Any) -> None:
        super()._load_from_checkpoint(resume_from_checkpoint, *args, **kwargs)
        if not (self.is_fsdp_enabled or self.is_deepspeed_enabled):
            model = self.accelerator.unwrap_model(self.model)
            restore_renamed(model, Path(resume_from_checkpoint))

    def _learn_about_loss(
        self, model: nn.Module, inputs: dict[str, Any], items: Tensor | int
    ) -> None:
        self._loss_known = True
        alone = self.args.gradient_accumulation_steps == 1 and self.args.world_size == 1
        if alone or not self.model_accepts_loss_kwargs or self.compute_loss_func is not None:
            return
        ready = self._prepare_inputs(inputs)

        def loss(items: Tensor) -> Tensor:
            value: Any = self.compute_loss(model, dict(ready), num_items_in_batch=items)
            return value  # type: ignore[no-any-return]

        with evaluating(model):
            if ignores_item_count(loss, items):
                self.model_accepts_loss_kwargs = False


def ignores_item_count(loss: Callable[[Tensor], Tensor], items: Tensor | int) -> bool:
    """Whether a loss stays the same when the step has twice as many items."""
    items = torch.as_tensor(items)
    with torch.no_grad():
        return bool(torch.equal(loss(items), loss(2 * items)))


def restore_renamed(model: nn.Module, folder: Path) -> None:
    """Restore the weights of a checkpoint that has them under other names.

    `save_pretrained` writes some old names (a layer norm's gamma), and the Trainer of early
    versions of transformers 5 passes over what it does not find by name.
    """
    file = folder / SAFE_WEIGHTS_NAME
    if not (file.is_file() and isinstance(model, PreTrainedModel)):
        return
    with safe_open(file, framework="pt") as saved:
        known = set(saved.keys())
    found = {id(p) for name, p in model.named_parameters(remove_duplicate=False) if name in known}
    if any(id(p) not in found for p in model.parameters() if p.numel()):
        loaded = type(model).from_pretrained(folder, dtype=model.dtype)
        model.load_state_dict(loaded.state_dict())
