"""Give a block the values of its own heads where code outside computes them for all heads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from headcount.heads.anatomy import Anatomy, HeadArgument
from headcount.surgery.class_swap import hook_on
from headcount.surgery.emptied import argument_names


def take_heads(values: Tensor, dim: int, heads: Sequence[int], born: int) -> Tensor:
    """The entries of these heads along `dim`; all, if the dimension has no entry per head."""
    if values.shape[dim] != born or born == len(heads):
        return values
    return (
        torch.cat([values.narrow(dim, head, 1) for head in heads], dim)
        if heads
        else values.narrow(dim, 0, 0)
    )


class SelectNormOutputs:
    """After a normalisation across all heads, pass on the kept ones (OLMo 2's q_norm, k_norm).

    Each value is divided by a norm over all heads, including removed ones. So the projection
    before it must stay whole, or the result would not be exact.
    """

    size: int
    units: tuple[int, ...]

    def __call__(self, module: nn.Module, args: Any, output: Tensor) -> Tensor:
        """The columns of the kept heads."""
        starts = [unit * self.size for unit in self.units]
        return torch.cat([output.narrow(-1, start, self.size) for start in starts], -1)


def select_norm_outputs(home: nn.Module, anatomy: Anatomy, kept: Sequence[int]) -> None:
    """Let the block's wide norms pass on the kept heads only."""
    for path, unit in anatomy.wide_norms:
        hook = hook_on(home.get_submodule(path), SelectNormOutputs, before=False)
        hook.size = anatomy.key_size
        hook.units = tuple(kept) if unit == "query" else anatomy.key_value_heads(kept)


class SelectArguments:
    """Before the forward pass, cut arguments with a value per head down to the kept heads."""

    names: tuple[str, ...]
    arguments: tuple[HeadArgument, ...]
    heads: tuple[int, ...]
    born: int

    def __call__(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments, cut down."""
        positional = list(args)
        for argument in self.arguments:
            place = self.names.index(argument.name)
            if isinstance(kwargs.get(argument.name), Tensor):
                kwargs[argument.name] = self._select(kwargs[argument.name], argument)
            elif place < len(positional) and isinstance(positional[place], Tensor):
                positional[place] = self._select(positional[place], argument)
        return tuple(positional), kwargs

    def _select(self, values: Tensor, argument: HeadArgument) -> Tensor:
        if not argument.folded:
            return take_heads(values, argument.dim, self.heads, self.born)
        apart = values.unflatten(argument.dim, (values.shape[argument.dim] // self.born, self.born))
        return take_heads(apart, argument.dim + 1, self.heads, self.born).flatten(
            argument.dim, argument.dim + 1
        )


def select_arguments(attention: nn.Module, anatomy: Anatomy, kept: Sequence[int]) -> None:
    """Cut the block's arguments with a value per head down to the kept ones."""
    if not anatomy.arguments:
        return
    hook = hook_on(attention, SelectArguments, before=True)
    hook.names = argument_names(attention)
    hook.arguments, hook.heads, hook.born = anatomy.arguments, tuple(kept), anatomy.num_heads
