"""COMPENSATE: change the output projections so that heads about to be cut are missed less.

Nothing is trained. Least squares with a ridge fits each output projection again, so that the heads
that stay give nearly what all heads gave before. The sums are added up batch by batch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import ExitStack

import torch
from torch import Tensor, nn

from headcount.batch import Batch, evaluating
from headcount.errors import HeadcountError
from headcount.gates import masked
from headcount.heads.blocks import HeadMap
from headcount.heads.find import find_heads
from headcount.heads.mask import HeadMask
from headcount.surgery.answers import Answers, find_answers
from headcount.surgery.least_squares import LeastSquares
from headcount.surgery.offloaded import refuse_offloaded
from headcount.surgery.outputs import Output, outputs_of, tokens_among
from headcount.surgery.paused import (
    Call,
    Changed,
    Layers,
    Pass,
    added_to_input,
    look_round,
    pausing,
)

RIDGE = 1e-3


def compensate(
    model: nn.Module,
    mask: HeadMask,
    batches: Iterable[Batch],
    ridge: float = RIDGE,
    frozen: Collection[str] = (),
    answers: bool = True,
) -> None:
    """Change the output projections so that the model misses the closed heads less.

    Least squares finds the projections with which the open heads alone come closest to what the
    unpruned model's projections gave. Blocks are fitted in the order of the forward pass, each with
    the blocks before it pruned and fitted. A block without heads gives the mean. Each batch goes
    through the model twice, as it was and as it becomes, and waits at every block for the others.
    So the hidden states of the whole sample are in memory at once, those of one layer.

    Last, the linear map that a classifier answers with is fitted, so that its answers come
    closest to the old ones. A model whose logits do not come from such a map keeps what it has.

    Call it before `remove_heads`, with the same mask. The model keeps all its heads. Under
    `masked(model, mask)` it now gives what the cut model will give; do not use it without the mask
    any more. Blocks that the batches do not reach stay as they are.

    Args:
        model: a `transformers` model, pruned before or not.
        mask: the heads to keep.
        batches: a few hundred examples, as keyword arguments of the model. Padding does not count.
            This is where the attention mask is 0 or, in the decoder of an encoder-decoder, where
            a label is -100.
        ridge: the penalty on changing the weights, in units of the mean variance of the values. A
            larger one stays closer to the old weights; raise it for a small sample.
        frozen: names of parameters that must not change; their blocks are not fitted.
        answers: fit that map of a classifier, too. Leave it out if the map is trained afterwards.

    Raises:
        HeadcountError: the mask is for another model, a projection is not a plain one, or weights
            are offloaded. The model is then unchanged.
    """
    if not ridge > 0:
        raise HeadcountError(f"the ridge is {ridge}, expected a number above 0; try {RIDGE:g}")

    def refit(output: Output, sums: LeastSquares) -> Changed:
        weight, bias = sums.solve(ridge)
        changed = output.with_weight(weight) if output.kept else {}
        return changed | (output.with_bias(bias) if output.has_bias else {})

    fit_in_order(model, mask, batches, refit, frozen, answers=answers)


def fit_in_order(
    model: nn.Module,
    mask: HeadMask,
    batches: Iterable[Batch],
    solve: Solve,
    frozen: Collection[str] = (),
    residual: bool = False,
    answers: bool = False,
) -> None:
    """Change the output projections in the order of the forward pass, each by a fit of its own.

    Args:
        model: see `compensate`.
        mask: the heads to keep.
        batches: see `compensate`.
        solve: gets a projection, and the sums over all tokens of what its open heads give with the
            blocks before it pruned and fitted, and of what is missing then. It returns parameters
            in place of the projection's own, or None to leave this block and all after it as
            they are.
        frozen: names of parameters that must not change; their blocks are not fitted.
        residual: what is missing is that of the sum of a projection's output and its residual, of
            those that are plainly added to what their layer was given; see `added_to_input`. So a
            block also makes up for what those before it lost. A block that layers share does not:
            what it lost in one layer changes with its own fit.
        answers: fit the linear map that a classifier answers with at last.
    """
    heads = find_heads(model)
    mask.refuse_other_model(heads)
    for block in heads.blocks:
        refuse_offloaded(model, block, "fitted")
    outputs = outputs_of(model, heads, mask)
    sample = list(batches)
    if not sample:
        raise HeadcountError("there is no data to compensate with; give at least one batch")
    with torch.no_grad(), evaluating(model):
        last = find_answers(model, sample[0], frozen) if answers else None
        fitted = _fitted(model, outputs, mask, sample, solve, frozen, residual, last)
        for name, value in fitted.items():
            model.get_parameter(name).copy_(value)


def _fitted(
    model: nn.Module,
    outputs: Sequence[Output],
    mask: HeadMask,
    sample: Sequence[Batch],
    solve: Solve,
    frozen: Collection[str],
    residual: bool,
    answers: Answers | None,
) -> Changed:
    """Weights and biases with which the open heads come closest to what all heads gave."""
    order, layers, embeddings = look_round(model, outputs, sample[0])
    added = added_to_input(model, outputs, layers, sample[0]) if residual else set()
    changed: Changed = {}
    closed = _present(find_heads(model), mask)
    gates = torch.ones_like(closed)  # all open, for the passes of the model as it was
    with masked(model, gates), pausing(model, outputs, layers, embeddings), ExitStack() as running:
        whole, pruned = _begun(running, model, sample, changed, layers)
        drifted = False  # nothing has changed before the first block that loses a head
        for output, calls in order:
            drifted = drifted or bool(output.gone)
            fixed = not (output.kept or output.has_bias) or output.names & set(frozen)
            if not drifted or fixed:
                continue
            sums = LeastSquares(constant=output.has_bias)
            for batch, before, after in zip(sample, whole, pruned, strict=True):
                wanted = before.go_to(output, calls)
                gates.copy_(closed)
                given = after.go_to(output, calls)
                gates.fill_(1.0)
                for want, give in zip(wanted, given, strict=True):
                    kept = give.values[..., output.kept]
                    missing = _missing(want, give, output.name in added and calls == 1)
                    rows = tokens_among(
                        torch.cat([kept, missing], -1), model, batch, output.block.kind
                    )
                    sums.add(rows[:, : len(output.kept)], rows[:, len(output.kept) :])
            if sums.count:
                sums.refuse_overflow(output)
                found = solve(output, sums)
                if found is None:
                    break
                changed |= found
            if calls > 1:  # its earlier calls have changed too, and what came between them
                running.close()
                whole, pruned = _begun(running, model, sample, changed, layers)
        if answers is not None and drifted:
            with answers.hearing():
                for batch, before, after in zip(sample, whole, pruned, strict=True):
                    before.finish()
                    wanted_answer = answers.heard()
                    gates.copy_(closed)
                    after.finish()
                    gates.fill_(1.0)
                    answers.add(wanted_answer, answers.heard(), model, batch)
            changed |= answers.fitted()
    return changed


def _missing(want: Call, give: Call, residual: bool) -> Tensor:
    """What a projection lacks, also of its residual if that is asked for."""
    missing = want.answer - give.answer
    if residual and want.given is not None and give.given is not None:
        missing = missing + (want.given - give.given)
    return missing


def _present(heads: HeadMap, mask: HeadMask) -> Tensor:
    """The gates of the heads that are there."""
    return mask.gates()[list(heads.indices)]


def _begun(
    running: ExitStack,
    model: nn.Module,
    sample: Sequence[Batch],
    changed: Changed,
    layers: Layers,
) -> tuple[list[Pass], list[Pass]]:
    """Two passes per batch, of the model as it was and as it becomes; the stack stops them."""
    shared: list[Changed] = [{} for _ in sample]
    both = list(zip(sample, shared, strict=True))
    whole = [Pass(model, batch, {}, layers, own) for batch, own in both]
    pruned = [Pass(model, batch, changed, layers, own) for batch, own in both]
    for begun in (*whole, *pruned):
        running.callback(begun.stop)
    return whole, pruned


# What replaces the parameters of a projection, from its sums; None ends the fits.
Solve = Callable[[Output, LeastSquares], Changed | None]
