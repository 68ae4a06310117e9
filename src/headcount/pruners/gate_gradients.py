"""The gradient of the loss with respect to each head's gate, example by example.

A gate multiplies what a head says. Its gradient says how much the loss feels the head as the model
is, and is found for all heads in one backward pass per batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from headcount.batch import Batch, answers_per_example, batch_size
from headcount.heads.blocks import AttentionBlock, HeadMap
from headcount.heads.mask import HeadMask
from headcount.pruners.backward import Backward

Granularity = Literal["example", "token", "batch"]
Called = list[str]  # the block of each call, in the order of calls


class GateGradients(NamedTuple):
    """Of one batch: the gradients of its examples' own losses, and how many examples it has.

    `rows` has a tensor per block, with a column per head and a row per example, token or batch.
    """

    rows: list[Tensor]
    examples: int


def gate_gradients(
    model: nn.Module,
    heads: HeadMap,
    mask: HeadMask,
    batches: Iterable[Batch],
    granularity: Granularity = "example",
) -> Iterator[GateGradients]:
    """The gradients of every head's gate, batch by batch, with the gates at the mask.

    Args:
        model: gives a `loss` that is a mean over the batch; its parameters get no gradients.
        heads: its heads.
        mask: the gates' values; the gradient at a closed gate is that of opening it.
        batches: what the model takes, labels included.
        granularity: what a row is of.
    """
    back = Backward(model)
    with back.opened(), _leaf_gates(model, heads, mask, back) as called:
        for batch in batches:
            size = batch_size(batch)
            factors = _factors(model, batch, granularity)
            rows: dict[str, list[list[Tensor]]] = {block.name: [] for block in heads.blocks}
            called.clear()
            for part in back.passes(batch):
                for name, calls in rows.items():
                    found = [g for n, g in zip(called, back.gradients, strict=True) if n == name]
                    calls.append(
                        [_rows(g.cpu().double() / back.scale, part, granularity) for g in found]
                    )
                called.clear()
            # The loss is a mean over the examples; the gradient of one example's is `size` times.
            times = size if factors is None else 1.0
            yield GateGradients(
                [
                    times
                    * _together(
                        _joined(rows[b.name], granularity), factors, b.num_heads, granularity
                    )
                    for b in heads.blocks
                ],
                size,
            )


def _rows(gradient: Tensor, batch: Batch, granularity: Granularity) -> Tensor:
    """The gradient of a call per head and token, per head and example, or per head."""
    rows = gradient.flatten(0, -2)
    if granularity == "example":
        rows = rows.unflatten(0, (batch_size(batch), -1)).sum(1)
    elif granularity == "batch":
        rows = rows.sum(0, keepdim=True)
    return rows


def _factors(model: nn.Module, batch: Batch, granularity: Granularity) -> Tensor | None:
    """What turns the gradient of the batch's loss into those of its examples' own losses.

    The loss of a text is a mean over the tokens of all examples, in which a long one counts more.
    The paper's expectation is over examples, whatever batches they come in.
    """
    answers = answers_per_example(model, batch)
    if answers is None or granularity == "batch":
        return None  # every example counts the same
    answers = answers.cpu().double()
    return torch.where(answers > 0, answers.sum() / answers.clamp(min=1.0), 0.0)


def _weighted(rows: Tensor, factors: Tensor) -> Tensor:
    """The rows of each example times its factor."""
    by_example: Tensor = rows.unflatten(0, (len(factors), -1))
    return (by_example * factors[:, None, None]).flatten(0, 1)


def _joined(parts: Sequence[Sequence[Tensor]], granularity: Granularity) -> list[Tensor]:
    """The rows of each call in a whole batch, from those in its parts."""
    calls = zip(*parts, strict=True)
    if granularity == "batch":
        return [torch.stack(call).sum(0) for call in calls]
    return [torch.cat(call) for call in calls]


def _together(
    calls: Sequence[Tensor], factors: Tensor | None, heads: int, granularity: Granularity
) -> Tensor:
    """The rows of a block that was called never, once or more often.

    Layers may share a block (ALBERT), and its gates then are the same ones in all of them.
    """
    if not calls:
        return torch.zeros(0, heads, dtype=torch.float64)
    if factors is not None:
        calls = [_weighted(rows, factors) for rows in calls]
    return torch.cat(list(calls)) if granularity == "token" else torch.stack(list(calls)).sum(0)


@contextmanager
def _leaf_gates(
    model: nn.Module, heads: HeadMap, mask: HeadMask, back: Backward
) -> Iterator[Called]:
    """Gates that are leaves of the graph, one per head at every place of the block's output.

    They come as blocks are called, which need not be the order in which the model has them.
    """
    called: Called = []
    with ExitStack() as hooks:
        for block in heads.blocks:
            if block.num_heads:
                values = torch.tensor([float(index in mask.kept) for index in block.indices])
                projection = model.get_submodule(block.path).get_submodule(block.anatomy.output)
                hook = _LeafGate(values, block, called, back)
                hooks.enter_context(projection.register_forward_pre_hook(hook))
        yield called


class _LeafGate:
    def __init__(
        self, values: Tensor, block: AttentionBlock, called: Called, back: Backward
    ) -> None:
        self.values, self.block, self.called, self.back = values, block, called, back

    def __call__(self, module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        combined = args[0]
        shape = (*combined.shape[:-1], self.block.num_heads)
        leaf = self.back.leaf(self.values.to(combined).expand(shape).clone())
        if not self.back.again:
            self.called.append(self.block.name)
        by_head = combined.unflatten(-1, (self.block.num_heads, self.block.head_size))
        return ((by_head * leaf.unsqueeze(-1)).flatten(-2), *args[1:])
