"""Which calls of a model's modules end before a block's heads are read, and what they return.

A call that ends before the output projection of a block begins cannot depend on the gates of this
block or of a later one. If a mask closes heads only from there on, the call returns the same as in
the unpruned model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from typing import Any

import torch
from torch import Tensor, nn

from headcount.batch import Batch
from headcount.heads.blocks import AttentionBlock, HeadMap

Key = tuple[str, int]  # a module's path, and the number of the call


@dataclass(frozen=True)
class Call:
    """One call of a module in a forward pass.

    Attributes:
        path: path of the module.
        place: number of this call among the module's calls, from 0.
        begins: when it begins, on a clock that ticks at the begin and end of every call.
        ends: when it ends, on the same clock.
        shapes: shapes of all tensors that it returned; None if it returned other objects too.
    """

    path: str
    place: int
    begins: int
    ends: int
    shapes: tuple[tuple[int, ...], ...] | None

    @property
    def key(self) -> Key:
        """The key under which its output is kept."""
        return self.path, self.place


def trace(model: nn.Module, heads: HeadMap, inputs: Batch) -> list[Call]:
    """Run the model, and note the calls of all modules beside and above output projections."""
    clock = count()
    calls: list[Call] = []
    begun: dict[str, list[int]] = {}
    made: dict[str, int] = {}

    def begin(path: str) -> Callable[..., None]:
        return lambda *_: begun.setdefault(path, []).append(next(clock))

    def end(path: str) -> Callable[..., None]:
        def note(module: nn.Module, args: Any, output: Any) -> None:
            place = made.get(path, 0)
            made[path] = place + 1
            calls.append(Call(path, place, begun[path].pop(), next(clock), _shapes(output)))

        return note

    with ExitStack() as hooks, torch.no_grad():
        for path, module in _watched(model, heads):
            hooks.enter_context(module.register_forward_pre_hook(begin(path)))
            hooks.enter_context(module.register_forward_hook(end(path)))
        model(**inputs)
    return calls


def projection_path(block: AttentionBlock) -> str:
    """The path of a block's output projection."""
    return ".".join(part for part in (block.path, block.anatomy.output) if part)


def _watched(model: nn.Module, heads: HeadMap) -> Iterator[tuple[str, nn.Module]]:
    above = {""}
    for block in heads.blocks:
        parts = projection_path(block).split(".")
        above |= {".".join(parts[:depth]) for depth in range(1, len(parts))}
    for path, module in model.named_modules():
        # A list of layers is never called itself; the layers in it are watched instead.
        if path and path.rpartition(".")[0] in above and not isinstance(module, nn.ModuleList):
            yield path, module


def _shapes(output: Any) -> tuple[tuple[int, ...], ...] | None:
    found: list[tuple[int, ...]] = []
    plain = True

    def note(value: Any) -> Any:
        nonlocal plain
        if isinstance(value, Tensor):
            found.append(tuple(value.shape))
        elif not (value is None or isinstance(value, bool | int | float | str)):
            plain = False  # such as a cache, which a call does not only return but also changes
        return value

    each_leaf(output, note)
    return tuple(found) if plain else None


def each_leaf(value: Any, function: Callable[[Any], Any]) -> Any:
    """Apply a function to every leaf of nested tuples, lists and dictionaries."""
    if isinstance(value, tuple | list):
        parts = [each_leaf(part, function) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if isinstance(value, dict):
        return type(value)(**{name: each_leaf(part, function) for name, part in value.items()})
    return function(value)
