"""Count the floating-point operations of a forward pass: those of its matrix products."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from headcount.bench.speed import Job


def count_flops(job: Job) -> int:
    """Operations of all matrix products of a job, a multiplication and an addition being two.

    Activations, normalisation and softmax are not counted, as is usual.
    """
    # torch knows this formula for every attention kernel but the one of processors.
    kernels = {torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _attention}
    with FlopCounterMode(display=False, custom_mapping=kernels) as counter:
        job()
    return int(counter.get_total_flops())


def _attention(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    """Of these shapes; keys and values that several queries share are read by each of them."""
    batch, heads, queries, key_size = query
    return int(2 * batch * heads * queries * key[-2] * (key_size + value[-1]))
