"""Time and memory of `soft_top_k`, forward and backward, beside eq. 14-19 written out for autograd.

Both sides take turns on one thread, in blocks whose first run is not counted: it pays for what the
other side left in the caches and in the allocator. Memory is what each keeps for the backward pass.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
from measuring.claims import say
from torch import Tensor

from headcount.bench.speed import this_machine
from headcount.pruners.top_k import gumbel_noise, soft_top_k

SIZES = ((144, 12), (144, 72), (144, 132), (72, 6))
TEMPERATURES = (1000.0, 1.0, 0.01, 1e-4, 1e-8)
BLOCKS, RUNS = 15, 6

SoftTopK = Callable[[Tensor, int, float], Tensor]


def transcribed(logits: Tensor, k: int, temperature: float) -> Tensor:
    r, gates = logits, torch.zeros_like(logits)
    for _ in range(k):
        p = torch.softmax(r / temperature, dim=-1)
        gates = gates + p
        r = r + torch.log(1 - p)
    return gates


def seconds(function: SoftTopK, logits: Tensor, k: int, temperature: float) -> list[float]:
    """Of the runs of one block, without the first."""
    grad, taken = torch.ones_like(logits), []
    for _ in range(RUNS + 1):
        started = time.perf_counter()
        torch.autograd.grad(function(logits, k, temperature), logits, grad)
        taken.append(time.perf_counter() - started)
    return taken[1:]


def kept(function: SoftTopK, logits: Tensor, k: int, temperature: float) -> int:
    """Bytes of all tensors that wait for the backward pass, each counted once."""
    storages: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        if tensor is not logits:
            storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        gates = function(logits, k, temperature)  # alive, so that no address is used twice
    del gates
    return sum(storages.values())


def spread(values: list[float]) -> str:
    low, middle, high = (1e6 * value for value in statistics.quantiles(values, n=4))
    return f"{middle:6.0f} ({low:.0f}-{high:.0f})"


def main() -> None:
    torch.set_num_threads(1)
    print(f"{this_machine()}; median (quartiles) of {BLOCKS * RUNS} runs, μs")
    slowest, largest = [], []
    for size, k in SIZES:
        ratios = []
        for temperature in TEMPERATURES:
            logits = (0.05 * torch.randn(size).double() + gumbel_noise(size, 0, 0)).requires_grad_()
            times: dict[SoftTopK, list[float]] = {soft_top_k: [], transcribed: []}
            for _ in range(BLOCKS):
                for function, taken in times.items():
                    taken += seconds(function, logits, k, temperature)
            ours, plain = times.values()
            ratio = statistics.median(plain) / statistics.median(ours)
            ratios.append(ratio)
            print(
                f"{k:4d} of {size}, τ = {temperature:<6g} soft_top_k {spread(ours):20s} "
                f"autograd {spread(plain):22s} ratio {ratio:.1f}"
            )
        ours_kept, plain_kept = (kept(function, logits, k, temperature) for function in times)
        print(
            f"{k:4d} of {size}, kept for backward: soft_top_k {ours_kept / 1024:.0f} KiB "
            f"(K·H doubles: {k * size / 128:.0f}), autograd {plain_kept / 1024:.0f} KiB, "
            f"ratio {plain_kept / ours_kept:.1f}"
        )
        slowest.append((f"{k} of {size}", min(ratios)))
        largest.append((f"{k} of {size}", plain_kept / ours_kept))
    for name, ratio in slowest:
        say(f"time of autograd / of soft_top_k, {name}, the least over τ", ratio, at_least=1)
    for name, ratio in largest:
        say(f"kept by autograd / by soft_top_k, {name}", ratio, at_least=1)


if __name__ == "__main__":
    main()
