"""The K softmaxes of the soft top-K (DSP paper, eq. 14-18) and their gradient, compiled.

The K steps run one after another on a few hundred numbers, so calls would cost more than the
arithmetic. Both functions are plain loops, which numba compiles on first use and caches on disk.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]

BOUND = 1e100  # gradients saturate here
_LOWEST = -1e300  # a score that is never chosen, but finite
_DUST = -500.0  # exp of less is negligible beside 1, and slow where it underflows
_APART = math.log(1 / 9)  # m is apart if the log of the others' sum over its own is below this
_SMALL = 1e-4  # below it, four terms give log(1 - p) to the last digit

_Function = TypeVar("_Function", bound=Callable[..., Any])


def compiled(function: _Function) -> _Function:
    """Compile a function of numbers and arrays on its first use, and cache it on disk."""
    # As in numpy, a division by zero gives infinity. A check for an exception would cost time.
    try:
        compiled: Any = numba.njit(cache=True, error_model="numpy")(function)
    except RuntimeError:  # no folder for the cache can be written to
        compiled = numba.njit(error_model="numpy")(function)
    return cast(_Function, compiled)


@compiled
def take_steps(
    r: Floats, temperature: float, shares: Floats, rest: Floats, apart: Indices, gates: Floats
) -> None:
    """Take the K steps of one row; write their sum, the gates, and what `retrace_steps` needs.

    A step in which one head m has nearly everything is stored as `rest = 1 - g_m`, `apart = m`, and
    the others' shares of the rest, `g_j / (1 - g_m)`. They stay exact when g_m rounds to 1. Any
    other step is stored as it is, with a rest of 1, and -1 for the head apart. Equal heads are
    never apart, and stay equal to the last digit.

    Args:
        r: perturbed logits of H ≥ 2 heads.
        temperature: τ.
        shares: written, K × H.
        rest: written, K.
        apart: written, K.
        gates: written, H.
    """
    size = r.size
    highest = r.max()
    s = np.empty(size)
    for j in range(size):
        s[j] = max((r[j] - highest) / temperature, _LOWEST)  # eq. 17: s = r / τ, shifted
        gates[j] = 0.0
    for k in range(rest.size):
        share = shares[k]
        m, second = 0, -math.inf
        for j in range(1, size):
            if s[j] > s[m]:
                m, second = j, s[m]
            elif s[j] > second:
                second = s[j]
        others = 0.0
        for j in range(size):
            distance = s[j] - second
            share[j] = math.exp(distance) if j != m and distance > _DUST else 0.0
            others += share[j]
        odds = second - s[m] + math.log(others)  # log of the others against m
        if odds < _APART:
            log_rest = odds - math.log1p(math.exp(odds))
            left, whole = math.exp(log_rest), others
            s[m] = max(s[m] + log_rest / temperature, _LOWEST)
            gates[m] += 1.0 - left
            apart[k], rest[k] = m, left
        else:
            share[m] = math.exp(s[m] - second)
            left, whole = 1.0, others + share[m]
            apart[k], rest[k] = -1, 1.0
        for j in range(size):
            if share[j] != 0.0:
                share[j] /= whole  # eq. 14-16
                p = left * share[j]
                gates[j] += p  # eq. 19
                if p < _SMALL:
                    log_rest = -p * (1 + p * (1 / 2 + p * (1 / 3 + p / 4)))
                else:
                    log_rest = math.log1p(-p)
                s[j] = max(s[j] + log_rest / temperature, _LOWEST)  # eq. 18, divided by τ


@compiled
def retrace_steps(
    grad: Floats,
    temperature: float,
    shares: Floats,
    rest: Floats,
    apart: Indices,
    adjoint: Floats,
) -> None:
    """The gradient of one row's r from that of its gates: the steps in reverse order.

    With the adjoint a of r after a step and v = grad - a / (1 - g), the adjoint before it is
    a + g (v - Σ g v) / τ. Where m is apart, a_m / (1 - g_m) is left out of v. Its effect needs no
    division by a small number: c = g_m a_m moves from m to the others by their shares.

    `shares`, `rest` and `apart` are from `take_steps`. `grad` and the `adjoint`, which is written,
    are within ±BOUND.
    """
    size = grad.size
    adjoint[:] = 0.0
    v = np.empty(size)
    for k in range(rest.size - 1, -1, -1):
        share, m, left = shares[k], apart[k], rest[k]
        mean = 0.0  # Σ g v
        for j in range(size):
            g = left * share[j]
            v[j] = grad[j] - adjoint[j] / (1.0 - g)
            mean += g * v[j]
        g_m, c = 0.0, 0.0
        if m >= 0:
            g_m = 1.0 - left
            c = g_m * adjoint[m]
            to_m = g_m * (left * grad[m] - mean) - c
            mean += g_m * grad[m]
        for j in range(size):
            change = share[j] * (left * (v[j] - mean) + c)
            adjoint[j] = min(max(adjoint[j] + change / temperature, -BOUND), BOUND)
        if m >= 0:
            adjoint[m] = min(max(adjoint[m] + to_m / temperature, -BOUND), BOUND)
