"""COMPENSATE: give back, in closed form, part of what heads gave that are about to go.

No weight is trained: the output projection is fitted anew, so that the heads that stay say what all
of them said before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress

import torch
from torch import Tensor, nn
from torch.func import functional_call

from headcount.errors import HeadcountError
from headcount.gates import masked
from headcount.heads.find import find_heads
from headcount.heads.mask import HeadMask
from headcount.mode import evaluating
from headcount.surgery.least_squares import LeastSquares
from headcount.surgery.outputs import Output, listening, outputs_of
from headcount.surgery.places import Batch, tokens_among

Changed = dict[str, Tensor]  # parameters by name
RIDGE = 1e-3


def compensate(
    model: nn.Module,
    mask: HeadMask,
    batches: Iterable[Batch],
    ridge: float = RIDGE,
) -> None:
    """Change the output projections such that the model misses the closed heads less.

    Least squares finds the projections with which the open heads alone come closest to what those
    of the unpruned model gave, block after block in the order of the forward pass, each with the
    blocks before it pruned and fitted; a block without heads gives the mean.

    Call it before `remove_heads`, with the same mask. The model keeps all its heads; under
    `masked(model, mask)` it then gives what the cut model will give, and without the mask it is
    of no use any more. Blocks that the batches do not reach stay as they are.

    Args:
        model: a `transformers` model, pruned before or not.
        mask: the heads to keep.
        batches: a few hundred examples, as the model takes them. Padding does not count: places
            where the attention mask is 0, and, in the decoder of an encoder-decoder, places where
            a label is -100.
        ridge: the penalty on changing the weights, in units of the mean variance of the values. A
            larger one stays closer to the old weights, which a small sample needs.

    Raises:
        HeadcountError: the mask is for another model, or a projection is not a plain one. The
            model is then untouched.
    """
    if not ridge > 0:
        raise HeadcountError(f"the ridge is {ridge}, expected a number above 0; try {RIDGE:g}")
    heads = find_heads(model)
    mask.refuse_other_model(heads)
    outputs = outputs_of(model, heads, mask)
    sample = list(batches)
    if not sample:
        raise HeadcountError("there is no data to compensate with; give at least one batch")
    with torch.no_grad(), evaluating(model):
        for name, value in _fitted(model, outputs, mask, sample, ridge).items():
            model.get_parameter(name).copy_(value)


def _fitted(
    model: nn.Module,
    outputs: Sequence[Output],
    mask: HeadMask,
    sample: Sequence[Batch],
    ridge: float,
) -> Changed:
    """Weights and biases with which the open heads come closest to what all heads gave."""
    changed: Changed = {}
    drifted = False  # nothing has changed before the first block that loses a head
    for output, calls in _in_order(model, outputs, sample[0]):
        drifted = drifted or bool(output.gone)
        if not drifted or not (output.kept or output.has_bias):
            continue
        sums = LeastSquares(constant=output.has_bias)
        for batch in sample:
            whole = _heard(model, output, calls, batch, {})
            with masked(model, mask):
                pruned = _heard(model, output, calls, batch, changed)
            for (_, wanted), (values, given) in zip(whole, pruned, strict=True):
                both = torch.cat([values[..., output.kept], wanted - given], -1)
                rows = tokens_among(both, model, batch, output.block.kind)
                sums.add(rows[:, : len(output.kept)], rows[:, len(output.kept) :])
        if not sums.count:
            continue
        weight, bias = sums.solve(ridge)
        changed |= output.with_weight(weight) if output.kept else {}
        changed |= output.with_bias(bias) if output.has_bias else {}
    return changed


def _in_order(
    model: nn.Module, outputs: Sequence[Output], batch: Batch
) -> list[tuple[Output, int]]:
    """The projections in the order of their first calls, and how often each is called."""
    calls: dict[str, int] = {}

    def hear(output: Output, values: Tensor, answer: Tensor) -> None:
        calls[output.name] = calls.get(output.name, 0) + 1

    with listening(outputs, hear):
        model(**batch)
    by_name = {output.name: output for output in outputs}
    return [(by_name[name], count) for name, count in calls.items()]


class _EnoughError(Exception):
    """What comes after the last call of a projection need not be computed."""


def _heard(
    model: nn.Module, output: Output, calls: int, batch: Batch, changed: Changed
) -> list[tuple[Tensor, Tensor]]:
    """Input and output of each call of a projection, with these parameters in place of its own."""
    heard: list[tuple[Tensor, Tensor]] = []

    def hear(_: Output, values: Tensor, answer: Tensor) -> None:
        heard.append((values, answer))
        if len(heard) == calls:
            raise _EnoughError

    with listening([output], hear), suppress(_EnoughError):
        functional_call(model, changed, args=(), kwargs=dict(batch))
    return heard
