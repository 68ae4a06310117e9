"""Choosing K of H heads: softly, hard, and the noise in between (DSP paper, §3.1-3.2).

Pure functions in float64. `soft_top_k` is eq. 14-19 as they stand, without their two traps: a
`1 - g` that rounds to zero, and K softmaxes that autograd would have to remember.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from itertools import islice
from operator import index
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable

from headcount.errors import HeadcountError

_Floats = NDArray[np.float64]
_Indices = NDArray[np.int64]
_Apart = tuple[int, float, float]

_BOUND = 1e100  # gradients saturate here
_COLDEST = 1e-100  # colder is the same: every gradient is 0 or saturated
_LOWEST = -1e300  # a score that is never chosen, yet finite
_DUST = -500.0  # exp of it is nothing beside 1; exp takes four times as long where it underflows
_APART = 0.9  # a head with more than this share of a step is treated apart from the others
_FADED = -200.0  # scores only fall; when all are lower than this, they are centred anew
_UNSEEN = 1e-20  # a change of scores that no float64 share can show
_BLOCK = 256  # steps whose backward coefficients are prepared together


def soft_top_k(logits: Tensor, k: int, temperature: float, noise: Tensor | None = None) -> Tensor:
    """Gates that sum to K and approach the K largest logits as the temperature falls.

    A gate may exceed 1 at temperatures in between. The gradient explodes where heads compete at low
    temperatures (1e10 is common near 1e-2 with a large K): clip that of the logits on its own. It
    saturates at ±1e100, or where the type of the logits ends, and is never infinite.

    Args:
        logits: log-importances, heads in the last dimension. Any type; float64 is best. Rows are
            computed one after another, on the CPU.
        k: how many heads the gates of a row add up to, from 1 to all.
        temperature: τ. At 1000 all gates are nearly equal, below 1e-4 nearly all are 0 or 1.
        noise: added to the logits: `gumbel_noise` while training, none to evaluate. It may have
            rows where the logits have none, or the reverse, and receives the same gradient.

    Returns:
        The gates, float64, on the device of the logits (on the CPU if that has no float64).
    """
    _check(logits, k)
    if not (temperature > 0 and math.isfinite(temperature)):
        raise HeadcountError(
            f"the temperature is {temperature}, expected a finite number above 0; "
            "anneal towards a small one such as 1e-8"
        )
    r, largest = logits.to("cpu", torch.float64), _largest(logits)
    if noise is not None:
        r, largest = _add(r, noise.to("cpu", torch.float64)), min(largest, _largest(noise))
    gates: Tensor = _SoftTopK.apply(r, int(k), float(temperature), largest)  # type: ignore[no-untyped-call]
    return _beside(logits, gates)


def hard_top_k(logits: Tensor, k: int) -> Tensor:
    """Gates that are 1 for the K largest logits and 0 for the others; ties go to the first head.

    Args:
        logits: log-importances, heads in the last dimension, of any type and on any device.
        k: how many heads to keep in each row, from 1 to all.

    Returns:
        The gates, float64, on the device of the logits (on the CPU if that has no float64).
    """
    _check(logits, k)
    if torch.isnan(logits).any():
        raise HeadcountError(
            "some logits are NaN, expected numbers that can be ranked; "
            "look for a training step that diverged"
        )
    order = torch.argsort(logits.detach(), dim=-1, descending=True, stable=True)
    chosen = _beside(logits, order[..., : int(k)])
    gates = torch.zeros(logits.shape, dtype=torch.float64, device=chosen.device)
    return gates.scatter_(-1, chosen, 1.0)


def gumbel_noise(size: int | Sequence[int], seed: int, step: int) -> Tensor:
    """Standard Gumbel noise that depends on the seed and the step, and on nothing else.

    Every process of a distributed run draws the same numbers, and so does a run that is resumed.
    Numpy mixes both into all bits of a fresh generator, so that neighbours have nothing in common
    (a `torch.Generator` heeds 32 bits: two steps of a long run could coincide).

    Args:
        size: shape of the noise; a number for a vector.
        seed: of the run, from 0.
        step: of the training, from 0; one draw per forward pass.

    Returns:
        The noise, float64, finite, on the CPU.
    """
    if min(seed, step) < 0:
        raise HeadcountError(
            f"the noise is for seed {seed} and step {step}, expected numbers from 0; count from 0"
        )
    shape = (size,) if isinstance(size, int) else tuple(size)
    u = torch.from_numpy(np.random.default_rng([seed, step]).random(shape))
    u.clamp_(min=2.0**-54)  # u is a multiple of 2^-53 below 1, and so 0 once in 2^53
    return -torch.log(-torch.log(u))


class _SoftTopK(torch.autograd.Function):
    """Eq. 14-19 and their gradient, for rows of perturbed logits r on the CPU in float64."""

    @staticmethod
    def forward(ctx: Any, r: Tensor, k: int, temperature: float, largest: float) -> Tensor:
        rows: _Floats = r.detach().numpy().reshape(-1, r.shape[-1])
        if not np.isfinite(rows).all():
            raise HeadcountError(
                "some logits or their noise are infinite or NaN, expected finite numbers; "
                "look for a training step that diverged"
            )
        count, size = rows.shape
        gates, shares = np.empty((count, size)), np.empty((count, k, size))
        ctx.temperature = max(temperature, _COLDEST)
        ctx.leads = [_take_steps(*row, ctx.temperature) for row in zip(rows, shares, strict=True)]
        for row, (rest, apart) in enumerate(ctx.leads):
            gates[row] = _sum_of_steps(shares[row], rest, apart)
        ctx.save_for_backward(torch.from_numpy(shares))
        ctx.limit = min(_BOUND, largest / max(count, 1))  # rows may be added up
        return torch.from_numpy(gates.reshape(r.shape))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        shares = ctx.saved_tensors[0].numpy()
        rows = grad.detach().numpy().reshape(len(shares), -1)
        if not np.isfinite(rows).all():  # a loss scaler must be able to notice
            return torch.full_like(grad, math.nan), None, None, None
        adjoints = np.empty(rows.shape)
        for row, direct in enumerate(np.clip(rows, -_BOUND, _BOUND)):
            rest, apart = ctx.leads[row]
            adjoints[row] = _retrace(direct, shares[row], rest, apart, ctx.temperature)
        np.clip(adjoints, -ctx.limit, ctx.limit, out=adjoints)
        return torch.from_numpy(adjoints.reshape(grad.shape)), None, None, None


def _take_steps(r: _Floats, shares: _Floats, temperature: float) -> tuple[_Floats, _Indices]:
    """Write the K softmaxes of one row into `shares`, with a minus; return (rest, apart).

    A step in which one head m has nearly everything is kept as `rest = 1 - g_m`, `apart = m`, and
    the others' shares of the rest, `g_j / (1 - g_m)`, which stay exact when g_m rounds to 1. Any
    other step is kept as it is, with a rest of 1 and no head apart. At a hundred heads a call costs
    more than its arithmetic: hence few calls, and scalars in arrays without dimensions.
    """
    rest, apart = np.ones(len(shares)), np.zeros(len(shares), dtype=np.int64)
    if r.size == 1:
        shares[:] = rest[:] = 0.0
        return rest, apart
    s = np.maximum((r - r[r.argmax()]) / temperature, _LOWEST)  # eq. 17: s = r / τ, shifted
    exps, logs, minus = np.empty(r.size), np.empty(r.size), np.full(r.size, -1.0)
    scalar, tau, scales = np.empty(()), np.array(temperature), rest.copy()
    add_up, get, least, is_apart = exps.dot, scalar.item, math.inf, False
    for k, share in enumerate(shares):
        if is_apart:
            m, z, log_rest = _set_apart(s, share, minus, scalar)
            is_apart = log_rest < math.log(0.5)  # equal heads are never apart: they stay equal
        if not is_apart:
            np.exp(s, exps)
            add_up(minus, scalar)
            if -get() < least:  # scores only fall: no head is above the highest that was seen
                top = s.item(s.argmax())
                if top < _FADED:
                    np.exp(np.subtract(s, top, s), exps)
                    add_up(minus, scalar)
                    top = 0.0
                least = math.exp(top) / _APART
                if -get() < least:
                    is_apart, least = True, math.inf
                    m, z, log_rest = _set_apart(s, share, minus, scalar)
        if is_apart:
            apart[k], rest[k], scales[k] = m, (left := math.exp(log_rest)), -1.0 / z
            if left < _UNSEEN * temperature:
                s[m] = max(s.item(m) + log_rest / temperature, _LOWEST)
                continue
            scalar[()] = -left / z
            np.log1p(np.multiply(share, scalar, logs), logs)
            logs[m] = log_rest
        else:
            np.divide(exps, scalar, share)  # eq. 14-16
            np.log1p(share, logs)
        np.divide(logs, tau, logs)
        np.add(s, logs, s)  # eq. 18, divided by τ
    if rest.min() < 1:
        shares *= scales[:, None]
    return rest, apart


def _set_apart(s: _Floats, exps: _Floats, minus: _Floats, scalar: _Floats) -> _Apart:
    """The highest head m, the sum of the others' exps (relative to their highest), log(1 - g_m)."""
    m = int(s.argmax())
    top, s[m] = s.item(m), -math.inf
    second = s.item(s.argmax())
    scalar[()] = second
    np.subtract(s, scalar, exps)
    s[m] = top
    np.maximum(exps, _DUST, out=exps)
    np.exp(exps, exps)
    exps[m] = 0.0
    z = -float(exps.dot(minus))
    x = second - top + math.log(z)  # log of the others against m
    return m, z, x - math.log1p(math.exp(x))


def _sum_of_steps(shares: _Floats, rest: _Floats, apart: _Indices) -> _Floats:
    """Eq. 19, of steps as `_take_steps` keeps them."""
    gates: _Floats = -rest @ shares
    gates += np.bincount(apart, weights=1.0 - rest, minlength=gates.size)
    return gates


def _retrace(
    grad: _Floats, shares: _Floats, rest: _Floats, apart: _Indices, temperature: float
) -> _Floats:
    """The gradient of one row's r from that of its gates: the steps, walked backwards.

    With the adjoint a of r after a step and v = grad - a / (1 - g), the adjoint before it is
    a + g (v - Σ g v) / τ. Where m is apart, a_m / (1 - g_m) is left out of v. What it does needs
    no division by something small: c = g_m a_m / τ moves from m to the others by their shares.
    The largest adjoint grows by less than 1 + 64 / τ in a step, and is clipped before it overflows.
    """
    adjoint, weights = np.zeros(grad.size), np.ones(3)
    dot, item, combine = adjoint.dot, adjoint.item, weights.dot
    safe = int(min(460 / math.log1p(64 / temperature), _BLOCK)) or 1  # e^460 = 1e200
    size = _BLOCK // safe * safe
    for stop in range(len(shares), 0, -size):
        block = slice(max(stop - size, 0), stop)
        steps = _coefficients(grad, shares[block], rest[block], apart[block], temperature)
        for _ in range(block.start, stop, safe):
            for m, g_m, left, mean, odds, factor, scaled, terms in islice(steps, safe):
                mean -= float(dot(odds))  # now Σ g v of all heads but m
                np.multiply(adjoint, factor, scaled)
                if g_m:
                    c, v_m = g_m * item(m), float(grad[m])
                    weights[2] = left * (mean + g_m * v_m) - c
                    combine(terms, adjoint)
                    adjoint[m] += (g_m * (left * v_m - mean) - c) / temperature
                else:
                    weights[2] = mean
                    combine(terms, adjoint)
            np.clip(adjoint, -_BOUND, _BOUND, out=adjoint)
    return adjoint


def _coefficients(
    grad: _Floats, shares: _Floats, rest: _Floats, apart: _Indices, temperature: float
) -> zip[Any]:
    """What `_retrace` needs of each step, last step first."""
    g = shares * -rest[:, None] if rest.min() < 1 else -shares
    terms = np.empty((len(g), 3, grad.size))  # scaled adjoint, g grad / τ, -shares / τ
    np.multiply(g, grad / temperature, terms[:, 1])
    np.multiply(shares, 1.0 / temperature, terms[:, 2])
    odds = g / (1.0 - g)
    factors = 1.0 - odds * (1.0 / temperature)
    numbers = (each[::-1].tolist() for each in (apart, 1.0 - rest, rest, g @ grad))
    arrays = (each[::-1] for each in (odds, factors, terms[:, 0], terms))
    return zip(*numbers, *arrays, strict=True)


def _check(logits: Tensor, k: int) -> None:
    size = logits.shape[-1] if logits.dim() else 0
    if not hasattr(k, "__index__") or not 1 <= index(k) <= size:
        raise HeadcountError(
            f"cannot keep {k} of {size} heads; give a whole number from 1 to {size}"
        )


def _add(logits: Tensor, noise: Tensor) -> Tensor:
    with suppress(RuntimeError):  # as many heads, but other rows
        if noise.shape[-1:] == logits.shape[-1:]:
            return logits + noise
    raise HeadcountError(
        f"the noise has the shape {tuple(noise.shape)}, but the logits have "
        f"{tuple(logits.shape)}; draw one number per head"
    )


def _largest(tensor: Tensor) -> float:
    """The largest gradient that the tensor's type can hold."""
    return torch.finfo(tensor.dtype).max if tensor.is_floating_point() else math.inf


def _beside(logits: Tensor, tensor: Tensor) -> Tensor:
    """The tensor on the device of the logits, or on the CPU if that has no float64."""
    return tensor.cpu() if logits.is_cpu or logits.is_mps else tensor.to(logits.device)
