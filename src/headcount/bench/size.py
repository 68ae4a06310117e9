"""What a job needs besides time: its peak memory, the bytes of its cache, its operations.

All three are counted, not measured: the same job gives the same number on any machine and under
any load. Memory is counted from the events of torch's own allocator. The rest of a process (its
code, the scratch memory of mathematical libraries) is not included.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode
from transformers import EncoderDecoderCache, PreTrainedModel

from headcount.batch import Batch
from headcount.bench.speed import Job
from headcount.errors import HeadcountError

_EVENT = "[memory]"


def peak_memory(job: Job) -> int:
    """Bytes of tensors at the worst moment of a job, without those that existed before it."""
    job()  # tensors that only the first run makes and keeps do not count
    record: Any = profile(activities=[ProfilerActivity.CPU], profile_memory=True)
    with _silent():
        record.start()
    try:
        job()
    finally:
        with _silent():
            record.stop()
    results = record.profiler.kineto_results
    events = [event for event in results.events() if event.name() == _EVENT]
    held = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak


@contextmanager
def _silent() -> Iterator[None]:
    """Stop native code from writing to the terminal: the profiler reports its start and end."""
    sys.stderr.flush()
    terminal = os.dup(2)
    with open(os.devnull, "wb") as nothing:
        os.dup2(nothing.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(terminal, 2)
        os.close(terminal)


def cache_bytes(model: PreTrainedModel, inputs: Batch) -> int:
    """Bytes of the cache after a forward pass over these inputs, cross-attention included."""
    taken = inspect.signature(model.forward).parameters
    cache = None
    if "use_cache" in taken:
        with torch.inference_mode():
            cache = getattr(model(**inputs, use_cache=True), "past_key_values", None)
    if cache is None:
        raise HeadcountError(
            f"{type(model).__name__} keeps no keys and values from token to token, so that it has "
            "no cache to count; give a model that generates"
        )
    return sum(tensor.numel() * tensor.element_size() for tensor in _tensors(cache))


def _tensors(cache: Any) -> Iterator[Tensor]:
    if isinstance(cache, EncoderDecoderCache):
        yield from _tensors(cache.self_attention_cache)
        yield from _tensors(cache.cross_attention_cache)
        return
    for layer in cache.layers:
        if layer.keys is not None:
            yield from (layer.keys, layer.values)


def count_flops(job: Job) -> int:
    """Operations of all matrix products of a job; a multiplication and an addition are two.

    As usual, activations, normalisation and softmax are not counted.
    """
    # torch knows this formula for every attention kernel except the one for processors.
    kernels = {torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _attention}
    with FlopCounterMode(display=False, custom_mapping=kernels) as counter:
        job()
    return int(counter.get_total_flops())


def _attention(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    """Operations of attention on these shapes; each query reads its keys, also shared ones."""
    batch, heads, queries, key_size = query
    return int(2 * batch * heads * queries * key[-2] * (key_size + value[-1]))
