"""Choose K of H heads: softly, hard, and with noise (DSP paper, §3.1-3.2).

Pure functions in float64. `soft_top_k` is exactly eq. 14-19, without their two traps: a `1 - g`
that rounds to zero, and K softmaxes that autograd would have to remember.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from operator import index
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headcount.errors import HeadcountError
from headcount.pruners.top_k_kernel import BOUND, retrace_steps, take_steps

LARGEST = 1e300  # of a logit: sums and differences with it are finite
_COLDEST = 1e-100  # lower temperatures change nothing: every gradient is 0 or saturated


def soft_top_k(logits: Tensor, k: int, temperature: float, noise: Tensor | None = None) -> Tensor:
    """Gates that sum to K and approach the K largest logits as the temperature falls.

    A gate may exceed 1 at temperatures in between. The gradient explodes where heads compete at low
    temperatures: 1e10 is common near 1e-2 with a large K. So clip that of the logits on its own. It
    saturates at ±1e100, or at the largest number of the logits' type, and is never infinite.

    Args:
        logits: log-importances, heads in the last dimension. Any type; float64 is best. Rows are
            computed one after another, on the CPU.
        k: what the gates of a row sum to, from 1 to the number of heads.
        temperature: τ. At 1000 all gates are nearly equal, below 1e-4 nearly all are 0 or 1.
        noise: added to the logits: `gumbel_noise` for training, None for evaluation. It may have
            rows where the logits have none, or the reverse. It receives the same gradient.

    Returns:
        The gates, float64, on the device of the logits (on the CPU if that has no float64).
    """
    check_logits(logits)
    check_count(logits, k)
    check_temperature(temperature)
    r, largest = logits.to("cpu", torch.float64), _largest(logits)
    if noise is not None:
        r, largest = _add(r, noise.to("cpu", torch.float64)), min(largest, _largest(noise))
    gates: Tensor = _SoftTopK.apply(r, int(k), float(temperature), largest)  # type: ignore[no-untyped-call]
    return beside(logits, gates)


def hard_top_k(logits: Tensor, k: int) -> Tensor:
    """Gates that are 1 for the K largest logits and 0 for the others; ties go to the first head.

    Args:
        logits: log-importances, heads in the last dimension, of any type and on any device.
        k: how many heads to keep in each row, from 1 to their number.

    Returns:
        The gates, float64, on the device of the logits (on the CPU if that has no float64).
    """
    check_logits(logits)
    check_count(logits, k)
    if torch.isnan(logits).any():
        raise HeadcountError(
            "some logits are NaN, expected numbers that can be ranked; "
            "look for a training step that diverged"
        )
    order = torch.argsort(logits.detach(), dim=-1, descending=True, stable=True)
    chosen = beside(logits, order[..., : int(k)])
    gates = torch.zeros(logits.shape, dtype=torch.float64, device=chosen.device)
    return gates.scatter_(-1, chosen, 1.0)


def gumbel_noise(size: int | Sequence[int], seed: int, step: int) -> Tensor:
    """Standard Gumbel noise that depends only on the seed and the step.

    Every process of a distributed run draws the same numbers, and so does a resumed run. Numpy
    mixes seed and step into all bits of a fresh generator, so that neighbours have nothing in
    common. (A `torch.Generator` uses 32 bits: two steps of a long run could coincide.)

    Args:
        size: shape of the noise; a number for a vector.
        seed: the seed of the run, 0 or more.
        step: the step of the training, counted from 0; one draw per forward pass.

    Returns:
        The noise, float64, finite, on the CPU.
    """
    if min(seed, step) < 0:
        raise HeadcountError(
            f"the noise is for seed {seed} and step {step}, expected numbers from 0; count from 0"
        )
    shape = (size,) if isinstance(size, int) else tuple(size)
    u = torch.from_numpy(np.random.default_rng([seed, step]).random(shape))
    u.clamp_(min=2.0**-54)  # u is a multiple of 2^-53 below 1, so it is 0 once in 2^53 draws
    return -torch.log(-torch.log(u))


def drawn_count(counts: Sequence[int], seed: int, step: int) -> int:
    """The K of a training step, if there are several: each comes once per round.

    It depends only on the seed and the step, as the noise does, but is independent of the noise. A
    round of all K gives each its share, also in a short training. Each round has a new order, which
    cannot coincide with a rhythm in the data.
    """
    turn, place = divmod(step, len(counts))
    order = np.random.default_rng([seed, turn, 1]).permutation(len(counts))
    return counts[int(order[place])]


class _SoftTopK(torch.autograd.Function):
    """Eq. 14-19 and their gradient, for rows of perturbed logits r on the CPU in float64."""

    @staticmethod
    def forward(ctx: Any, r: Tensor, k: int, temperature: float, largest: float) -> Tensor:
        rows = r.detach().numpy().reshape(-1, r.shape[-1])
        if not math.isfinite(rows.sum()) and not np.isfinite(rows).all():
            raise HeadcountError(
                "some logits or their noise are infinite or NaN, expected finite numbers; "
                "look for a training step that diverged"
            )
        if rows.size and float(np.abs(rows).max()) > LARGEST:
            raise HeadcountError(
                f"some logits are beyond ±{LARGEST:g}, where differences overflow; expected "
                "log-importances, so bring them to a smaller scale"
            )
        count, size = rows.shape
        gates, shares = np.ones((count, size)), np.zeros((count, k, size))
        rest, apart = np.empty((count, k)), np.empty((count, k), dtype=np.int64)
        ctx.temperature = max(temperature, _COLDEST)
        if size > 1:  # a single head is always chosen
            for row in range(count):
                take_steps(
                    rows[row], ctx.temperature, shares[row], rest[row], apart[row], gates[row]
                )
        ctx.rest, ctx.apart = rest, apart
        ctx.save_for_backward(torch.from_numpy(shares), r)
        ctx.limit = min(BOUND, largest / max(count, 1))  # gradients of rows may be added up
        return torch.from_numpy(gates.reshape(r.shape))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        with torch.no_grad():
            gradient = _SoftTopK.gradient(ctx, grad)
        if torch.is_grad_enabled():  # somebody may ask for second derivatives
            gradient = _OnceOnly.apply(gradient, grad, ctx.saved_tensors[1])  # type: ignore[no-untyped-call]
        return gradient, None, None, None

    @staticmethod
    def gradient(ctx: Any, grad: Tensor) -> Tensor:
        """The gradient of the perturbed logits."""
        shares = ctx.saved_tensors[0].numpy()
        rows = grad.detach().numpy().reshape(len(shares), -1)
        if not math.isfinite(rows.sum()) and not np.isfinite(rows).all():
            # A loss scaler must be able to notice.
            return torch.full_like(grad, math.nan)
        rows, adjoints = rows.clip(-BOUND, BOUND), np.zeros(rows.shape)
        if rows.shape[-1] > 1:
            for row in range(len(rows)):
                retrace_steps(
                    rows[row], ctx.temperature, shares[row], ctx.rest[row], ctx.apart[row],
                    adjoints[row],
                )  # fmt: skip
        adjoints.clip(-ctx.limit, ctx.limit, out=adjoints)
        return torch.from_numpy(adjoints.reshape(grad.shape))


class _OnceOnly(torch.autograd.Function):
    """A gradient that refuses to be differentiated, instead of giving none without a word."""

    @staticmethod
    def forward(ctx: Any, gradient: Tensor, *made_of: Tensor) -> Tensor:
        return gradient.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        raise HeadcountError(
            "soft_top_k has first derivatives only, but second ones were asked for; take the "
            "gradient without create_graph, or leave the gates out of what is differentiated twice"
        )


def check_logits(logits: Tensor) -> None:
    """Refuse logits that cannot be ranked."""
    if logits.is_complex():
        raise HeadcountError(
            f"the logits are {logits.dtype}, expected real numbers, which can be ranked; give "
            "their real parts or their sizes"
        )


def check_temperature(temperature: float) -> None:
    """Refuse a temperature that is not a finite number above 0."""
    if not (temperature > 0 and math.isfinite(temperature)):
        raise HeadcountError(
            f"the temperature is {temperature}, expected a finite number above 0; "
            "anneal towards a small one such as 1e-8"
        )


def check_count(logits: Tensor, k: int) -> None:
    """Refuse a K that cannot be chosen from these logits."""
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


def beside(logits: Tensor, tensor: Tensor) -> Tensor:
    """Move a tensor to the device of the logits, or to the CPU if that has no float64."""
    return tensor.cpu() if logits.is_cpu or logits.is_mps else tensor.to(logits.device)
