"""A step of several micro-batches or processes has the loss of one that is as large."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from transformers import Trainer

from headcount.eval_mode import evaluating


class AveragingTrainer(Trainer):
    """A `Trainer` that averages over micro-batches where the model does not do it itself.

    `Trainer` believes that every model with `**kwargs` divides its loss by the number of items in
    the step, and then does not average over micro-batches and processes itself. BERT's classifiers
    take the number and ignore it, so their loss would grow with both.
    """

    _loss_known = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        assert self.model is not None
        for parameter in self.model.parameters():
            # Of a block without heads: several processes would wait for its gradient forever.
            parameter.requires_grad_(parameter.requires_grad and parameter.numel() > 0)

    def training_step(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        num_items_in_batch: Tensor | int | None = None,
        **kwargs: Any,
    ) -> Tensor:
        """A micro-batch, after the model was asked once what it does with the number of items."""
        if not self._loss_known and num_items_in_batch is not None:
            self._learn_about_loss(model, inputs, num_items_in_batch)
        loss: Tensor = super().training_step(model, inputs, num_items_in_batch, **kwargs)
        return loss

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
    """Whether a loss stays as it is when it is told that the step has twice as many items."""
    items = torch.as_tensor(items)
    with torch.no_grad():
        return bool(torch.equal(loss(items), loss(2 * items)))
