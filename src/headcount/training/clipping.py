"""One gradient norm for the model and the pruner, as in the code of the DSP paper's BERT."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from headcount.pruners.base import Pruner


def clipping_with_model(clip: Callable[..., Any], pruner: Pruner) -> Callable[..., Tensor]:
    """`Accelerator.clip_grad_norm_`, with the pruner's parameters besides those it is given.

    Args:
        clip: the method itself. It knows about shards and the scale of mixed precision, but not of
            a parameter beside a sharded model; so it is asked for the model's norm only.
        pruner: its gradients are the same on every process.
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
        # The small number is that of torch's own clipping.
        factor = min(max_norm / (float(norm) + 1e-6), 1.0)
        if factor < 1.0:
            for gradient in [*(p.grad for p in parameters if p.grad is not None), *own]:
                gradient.mul_(factor)
        return norm

    return together
