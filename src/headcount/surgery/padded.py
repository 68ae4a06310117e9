"""Families whose code needs the original width: cut the rows, and put zeros in their place.

A removed head's queries, keys and values are zeros after their projections, and its columns are
left out again before the output projection. The weights are really gone and the outputs are exact.
Only the attention between the projections costs as much as before. A block that loses its last
head is treated in the same way if its code is too unusual for `emptied.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from headcount.heads.anatomy import Anatomy, Part
from headcount.surgery.class_swap import hook_on, recast
from headcount.surgery.emptied import BiasOnly

Runs = tuple[tuple[int, int], ...]


class SpreadRows:
    """After a projection: put its values where they were, with zeros between them."""

    runs: Runs
    width: int

    def __call__(self, module: nn.Module, args: Any, output: Tensor) -> Tensor:
        """The output at its original width."""
        pieces, end, taken = [], 0, 0
        for start, length in self.runs:
            pieces.append(output.new_zeros(*output.shape[:-1], start - end))
            pieces.append(output.narrow(-1, taken, length))
            end, taken = start + length, taken + length
        pieces.append(output.new_zeros(*output.shape[:-1], self.width - end))
        return torch.cat(pieces, -1)


class GatherColumns:
    """Before the output projection: take the values of the kept heads."""

    runs: Runs

    def __call__(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The input, without the columns of removed heads."""
        if not args[0].shape[-1]:  # the block has lost its last head since then
            return args, kwargs
        pieces = [args[0].narrow(-1, start, length) for start, length in self.runs]
        return (torch.cat(pieces, -1), *args[1:]), kwargs


def pad_projections(
    home: nn.Module, anatomy: Anatomy, present: Sequence[int], kept: Sequence[int]
) -> None:
    """Let the block's projections keep the width of `present`, with rows for `kept` only."""
    for part in anatomy.parts:
        projection = home.get_submodule(part.path)
        if not is_projection(projection):
            continue
        runs, width = _runs(anatomy, part, present, kept)
        if part.path == anatomy.output and not kept:
            recast(projection, BiasOnly)
        elif part.path == anatomy.output:
            hook_on(projection, GatherColumns, before=True).runs = runs
        else:
            spread = hook_on(projection, SpreadRows, before=False)
            spread.runs, spread.width = runs, width


def is_projection(module: nn.Module) -> bool:
    """Whether a part's module is called as a projection, so that its output can be padded."""
    return isinstance(module, nn.Linear | Conv1D)


def _runs(
    anatomy: Anatomy, part: Part, present: Sequence[int], kept: Sequence[int]
) -> tuple[Runs, int]:
    """Start and length of each run of kept rows among those present, and their full width."""
    rows, width = anatomy.rows_to_keep(part, present, kept)
    runs: list[tuple[int, int]] = []
    for row in rows:
        if runs and sum(runs[-1]) == row:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((row, 1))
    return tuple(runs), width
