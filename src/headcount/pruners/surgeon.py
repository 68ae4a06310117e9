"""Surgeon: the heads whose loss the others can make up for are the first to go.

Michel et al. ask how much the loss feels a head as the model stands. What counts after a cut is how
much it misses the head once the output weights of those that stay are fitted anew, which a head
that says what others say too survives least. That is Optimal Brain Surgeon (Hassibi and Stork
1993), with whole heads for weights.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import torch
from torch import nn

from headcount.errors import HeadcountError
from headcount.heads.find import find_heads
from headcount.heads.mask import HeadMask
from headcount.pruners.choice import Scope
from headcount.pruners.curvature import curvatures
from headcount.pruners.michel import Batch
from headcount.pruners.scored import Scored
from headcount.surgery.compensate import RIDGE
from headcount.surgery.outputs import outputs_of


class Surgeon(Scored):
    """Rank the heads of a fine-tuned model by what the others cannot make up for.

    It learns nothing while training: call `fit` with data before `mask`, and `compensate` with the
    mask before the cut, which changes the weights as the ranking expects.

    Args:
        keep: K; None ranks all heads.
        ridge: what a change of the output weights costs, in units of the mean square of the values.
        **scope: see `Pruner`.
    """

    name: ClassVar[str] = "surgeon"
    asks_for: ClassVar[str] = "model, batches"

    def __init__(self, keep: int | float | None, *, ridge: float = RIDGE, **scope: Any) -> None:
        super().__init__(keep, **scope)
        if not ridge > 0:
            raise HeadcountError(f"the ridge is {ridge}, expected a number above 0; try {RIDGE:g}")
        self.ridge = ridge

    def fit(self, model: nn.Module, batches: Iterable[Batch]) -> HeadMask:
        """Find out what the loss of each head costs.

        Args:
            model: the fine-tuned model; it is not changed.
            batches: what the model takes, labels included; gone through once.
        """
        self.bind(find_heads(model))
        found = rises(model, self.scope, batches, self.ridge)
        self.scores = torch.tensor(list(found.values()), dtype=torch.float64)
        return self.mask()


def rises(
    model: nn.Module, scope: Scope, batches: Iterable[Batch], ridge: float
) -> dict[int, float]:
    """What the loss of each head costs, by its number, of the heads in the scope that are there.

    Args:
        model: fine-tuned, cut before or not; it is not changed.
        scope: which heads.
        batches: what the model takes, labels included; gone through once.
        ridge: what a change of the output weights costs, in units of the mean square of the values.
    """
    heads = find_heads(model)
    inside = {block.name for block in scope.blocks(heads)}
    outputs = [
        output
        for output in outputs_of(model, heads, HeadMask.all(heads))
        if output.block.name in inside
    ]
    scores = torch.cat(
        [
            curvature.rises(curvature.output.block.head_size, ridge)
            for curvature in curvatures(model, outputs, batches)
        ]
    )
    indices = [heads.indices[place] for place in scope.positions(heads)]
    return dict(zip(indices, scores.tolist(), strict=True))
