"""Prove on a model's own inputs that removing heads does what masking them does."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from headcount.errors import HeadcountError
from headcount.gates import masked
from headcount.heads.find import find_heads
from headcount.heads.mask import HeadMask
from headcount.surgery.remove import remove_heads
from headcount.surgery.trial import floats


def prove_removal(
    model: nn.Module,
    inputs: Mapping[str, Any],
    mask: HeadMask | None = None,
    tolerance: float = 1e-5,
) -> float:
    """Cut a copy of the model and compare it with the masked original.

    headcount cuts only what it understands, and is tested on every family it claims to support.
    Use this for a model of your own.

    Args:
        model: the model, in evaluation mode; it is not changed.
        inputs: the keyword arguments of one forward pass.
        mask: the heads to keep; a random half of them if left out.
        tolerance: the largest accepted difference, as a share of the largest output, or of 1 if
            all outputs are smaller. Raise it for a model in half precision.

    Returns:
        The largest absolute difference between the outputs.

    Raises:
        HeadcountError: the outputs differ by more than the tolerance.
    """
    if mask is None:
        mask = HeadMask.random(find_heads(model), 0.5)
    with torch.no_grad():
        with masked(model, mask):
            expected = list(floats(model(**inputs)))
        small = copy.deepcopy(model)
        remove_heads(small, mask)
        found = list(floats(small(**inputs)))
    if [t.shape for t in expected] != [t.shape for t in found]:
        raise HeadcountError("the cut model gives outputs of other shapes than the masked one")
    difference = max(
        (_difference(*pair) for pair in zip(expected, found, strict=True)), default=0.0
    )
    limit = tolerance * max([1.0, *map(_largest, expected)])
    if not difference <= limit:
        raise HeadcountError(
            f"the cut model differs from the masked one by {difference:.2e}, more than "
            f"{limit:.0e}; its attention is not what headcount takes it for"
        )
    return difference


def _largest(values: Tensor) -> float:
    finite = values[values.isfinite()].abs()
    return float(finite.max()) if finite.numel() else 0.0


def _difference(expected: Tensor, found: Tensor) -> float:
    gap = (expected - found).abs()
    # A comparison would ignore NaN. Infinities that are equal are no difference.
    gap = torch.where(gap.isnan() & (expected != found), torch.inf, gap.nan_to_num(0.0))
    return float(gap.max()) if gap.numel() else 0.0
