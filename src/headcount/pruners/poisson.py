"""Conditional-Poisson subsets: the exact probability of each head to be among the K.

Give every set S of K heads the probability exp(Σ_S logits / τ), divided by the sum over all such
sets. A head's gate is the probability that it is in the set. At every temperature the gates are
between 0 and 1 and sum to K. The sums over sets are elementary symmetric polynomials, computed head
by head in log space. The gates are the gradient of the log of the last sum, so their Jacobian is
symmetric. A backward pass is therefore a derivative in one direction, computed in the same loop.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from headcount.pruners.top_k import beside, check_count, check_logits, check_temperature
from headcount.pruners.top_k_kernel import Floats, compiled

_CERTAIN = 1000.0  # exp of minus this is 0
_NEVER = -1e300  # log of a sum over no sets, but finite


def inclusion(logits: Tensor, k: int, temperature: float) -> Tensor:
    """The probability of every head to be among the K: differentiable gates in float64.

    Args:
        logits: log-importances of the heads, a vector.
        k: the size of the sets.
        temperature: τ. A high one makes all sets equally likely, a low one leaves the best set.
    """
    check_logits(logits)
    check_count(logits, k)
    check_temperature(temperature)
    r = logits.to("cpu", torch.float64)
    gates: Tensor = _Inclusion.apply(r, int(k), float(temperature))  # type: ignore[no-untyped-call]
    return beside(logits, gates)


def drawn_subset(
    logits: Tensor, k: int, temperature: float, seed: int, step: int, pool: int = 0
) -> Tensor:
    """Draw a set of K heads with the probabilities of `inclusion`; its gates are 1, the rest 0.

    The randomness comes from the seed and the step only, as in `gumbel_noise`. Pools of one step
    that are drawn apart have numbers, so that their draws are independent.
    """
    check_logits(logits)
    check_count(logits, k)
    check_temperature(temperature)
    entropy = [seed, step, 2, pool] if pool else [seed, step, 2]
    u = np.random.default_rng(entropy).random(logits.numel())
    chosen = _draw(_scores(logits.detach().to("cpu", torch.float64), k, temperature), k, u)
    return beside(logits, torch.from_numpy(chosen))


class _Inclusion(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, r: Tensor, k: int, temperature: float) -> Tensor:
        ctx.scores, ctx.k, ctx.temperature = _scores(r.detach(), k, temperature), k, temperature
        gates, _ = _walk(ctx.scores, k, np.zeros(r.numel()))
        return torch.from_numpy(gates)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        _, change = _walk(ctx.scores, ctx.k, grad.detach().numpy())
        return torch.from_numpy(change) / ctx.temperature, None, None


def _scores(r: Tensor, k: int, temperature: float) -> Floats:
    """Logits over τ, shifted so that zero is between the K-th and the next.

    A head far above zero is in every likely set, one far below in none. How far makes no difference
    beyond a bound, and sums of smaller numbers lose fewer digits.
    """
    ranked = r.sort(descending=True).values
    middle = (ranked[k - 1] + ranked[min(k, len(ranked) - 1)]) / 2
    scores: Floats = ((r - middle) / temperature).clamp(-_CERTAIN, _CERTAIN).numpy()
    return scores


@compiled
def _log_add(a: float, b: float) -> float:
    high = max(a, b)
    return high + math.log1p(math.exp(min(a, b) - high))


@compiled
def _sums(scores: Floats, k: int, along: Floats) -> tuple[Floats, Floats]:
    """Logs of the sums over sets of j of the first i heads, and their derivatives along a vector.

    Both are tables with a row per i from 0 to H, and a column per j from 0 to K.
    """
    size = scores.size
    logs, changes = np.full((size + 1, k + 1), _NEVER), np.zeros((size + 1, k + 1))
    logs[:, 0] = 0.0
    for i in range(size):
        for j in range(1, min(i + 1, k) + 1):
            without, with_it = logs[i, j], logs[i, j - 1] + scores[i]
            logs[i + 1, j] = _log_add(without, with_it)
            share = math.exp(with_it - logs[i + 1, j])
            added = changes[i, j - 1] + along[i]
            changes[i + 1, j] = (1.0 - share) * changes[i, j] + share * added
    return logs, changes


@compiled
def _walk(scores: Floats, k: int, along: Floats) -> tuple[Floats, Floats]:
    """The probabilities of all heads, and their derivatives along a vector."""
    size = scores.size
    before, before_changes = _sums(scores, k, along)
    after, after_changes = _sums(scores[::-1].copy(), k, along[::-1].copy())
    whole, whole_change = before[size, k], before_changes[size, k]
    gates, changes = np.empty(size), np.empty(size)
    for i in range(size):
        gate = change = 0.0
        for j in range(k):
            log = before[i, j] + scores[i] + after[size - 1 - i, k - 1 - j] - whole
            share = math.exp(min(log, 0.0))
            gate += share
            relative = before_changes[i, j] + along[i] + after_changes[size - 1 - i, k - 1 - j]
            change += share * (relative - whole_change)
        gates[i], changes[i] = min(gate, 1.0), change
    return gates, changes


@compiled
def _draw(scores: Floats, k: int, u: Floats) -> Floats:
    """Go through the heads from the last; take each with its probability, given those taken."""
    logs, _ = _sums(scores, k, np.zeros(scores.size))
    chosen = np.zeros(scores.size)
    left = k
    for i in range(scores.size - 1, -1, -1):
        if left and u[i] < math.exp(logs[i, left - 1] + scores[i] - logs[i + 1, left]):
            chosen[i] = 1.0
            left -= 1
    return chosen
