"""Which calls of a model's modules end before a block's heads are read, and what they return.

What ends before the output projection of a block begins cannot depend on the gates of its heads,
nor on those of any later block: under a mask that closes heads only from there on, its output is
that of the unpruned model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from typing import Any

import torch
from torch import Tensor, nn

from headcount.heads.blocks import AttentionBlock, HeadMap

Batch = Mapping[str, Any]
Key = tuple[str, int]  # a module's path, and which of its calls


@dataclass(frozen=True)
class Call:
    """One call of a module in a forward pass.

    Attributes:
        path: the module.
        place: which of its calls, from 0.
        begins: on a clock that ticks at every begin and end.
        ends: likewise.
        shapes: of all tensors in what it returned; None if something else was among them.
    """

    path: str
    place: int
    begins: int
    ends: int
    shapes: tuple[tuple[int, ...], ...] | None

    @property
    def key(self) -> Key:
        """What its output is kept under."""
        return self.path, self.place


def trace(model: nn.Module, heads: HeadMap, inputs: Batch) -> list[Call]:
    """Run the model and note the calls of all modules beside and above output projections."""
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
    """Where a block's output projection is in the model."""
    return ".".join(part for part in (block.path, block.anatomy.output) if part)


def _watched(model: nn.Module, heads: HeadMap) -> Iterator[tuple[str, nn.Module]]:
    above = {""}
    for block in heads.blocks:
        parts = projection_path(block).split(".")
        above |= {".".join(parts[:depth]) for depth in range(1, len(parts))}
    for path, module in model.named_modules():
        # A list of layers is never called itself, so its children count as its parent's.
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
            plain = False  # a cache, say, which a call changes and does not only return
        return value

    each_leaf(output, note)
    return tuple(found) if plain else None


def each_leaf(value: Any, function: Callable[[Any], Any]) -> Any:
    """The same structure of tuples, lists and dictionaries with the function of every leaf."""
    if isinstance(value, tuple | list):
        parts = [each_leaf(part, function) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if isinstance(value, dict):
        return type(value)(**{name: each_leaf(part, function) for name, part in value.items()})
    return function(value)
