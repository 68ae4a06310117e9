"""A trial before the first cut: is a block without some heads what it is with them closed?

The probe at the door (`heads/probe.py`) shows that the rows of a head are where they were looked
for. This shows the rest: nothing else in the block depends on the heads. A copy of one block of
each kind is cut, and answers a small input as another copy does whose heads are closed: with some
heads, the first not among them, and with none. If it differs or fails, nothing is cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from headcount.errors import HeadcountError
from headcount.heads.anatomy import Anatomy, pruned_record
from headcount.heads.blocks import AttentionBlock
from headcount.heads.probe import (
    Call,
    Kind,
    as_float32,
    bare_twin,
    can_run,
    first_calls,
    is_off,
    kind_of,
    undisturbed,
)
from headcount.surgery.resize import is_uneven

TOLERANCE = 1e-3  # of the largest value of an answer: far above rounding, far below a mistake
_TRIED: set[Kind] = set()
_CACHES = ("past_key_values", "cache_params", "mems", "state")
Cut = Callable[[nn.Module, AttentionBlock, tuple[int, ...]], None]


def try_cut(
    model: nn.Module,
    blocks: Sequence[AttentionBlock],
    kept: Mapping[str, tuple[int, ...]],
    cut: Cut,
) -> None:
    """Try the cut on a copy of one block of each kind that has not been tried yet.

    A block that cannot be run with a small input is not tried, nor is one that was cut before.

    Args:
        model: not changed.
        blocks: its blocks.
        kept: the heads that each block is to keep, by its name.
        cut: cuts the block in a module, in place.

    Raises:
        HeadcountError: a copy that was cut does not do what it should.
    """
    if is_off():
        return
    unknown: dict[Kind, AttentionBlock] = {}
    for block in blocks:
        kind = kind_of(model, block.path, block.anatomy)
        fresh = pruned_record(model.get_submodule(block.path)) is None
        if fresh and kind not in _TRIED and len(kept[block.name]) < block.num_heads:
            unknown.setdefault(kind, block)
    if not unknown or not can_run(model):
        return
    calls = first_calls(model, [block.path for block in unknown.values()])
    for kind, block in unknown.items():
        if block.path in calls:
            _try_block(model.get_submodule(block.path), block, cut, calls[block.path])
            _TRIED.add(kind)


def _try_block(home: nn.Module, block: AttentionBlock, cut: Cut, call: Call) -> None:
    for kept in (_telling(block.anatomy), ()):
        problem = _problem(home, block, kept, cut, as_float32(call))
        if problem is not None:
            raise HeadcountError(
                f"heads of {block.name} ({block.path}) cannot be removed: in a trial on a copy of "
                f"it, {problem}; prune another model, and tell us about this one"
            )


def _telling(anatomy: Anatomy) -> tuple[int, ...]:
    """Heads to keep that tell a mistake: not the first ones, whose places stay the same."""
    size, heads = anatomy.group_size, range(anatomy.num_heads)
    choices = (
        tuple(head for head in heads if head % 2),
        tuple(head for head in heads if head % size >= (size + 1) // 2),
        tuple(head for head in heads if head >= size * (anatomy.num_key_value_heads // 2)),
    )
    possible = (c for c in choices if anatomy.uneven_groups or not is_uneven(anatomy, c))
    return next((kept for kept in possible if 0 < len(kept) < len(heads)), ())


def _problem(
    home: nn.Module, block: AttentionBlock, kept: tuple[int, ...], cut: Cut, call: Call
) -> str | None:
    """What went wrong with a copy of the block; None if nothing did, or if nothing can be seen."""
    args, kwargs = call
    with undisturbed(home):
        closed, small = bare_twin(home), bare_twin(home)
        _close(closed, block.anatomy, kept)
        try:
            expected = list(floats(_answer(closed, args, kwargs)))
            again = list(floats(_answer(closed, args, kwargs)))
        except Exception:  # it needs more than it was called with
            return None
        if not all(torch.equal(*pair) for pair in zip(expected, again, strict=True)):
            return None  # it draws random numbers
        cut(small, block, kept)
        try:
            found = list(floats(_answer(small, args, kwargs)))
        except Exception as error:
            return f"it no longer ran without them ({type(error).__name__})"
        # The first is the answer; attention weights, which may follow, have fewer heads now.
        return _difference(expected[0], found[0]) if expected and found else None


def _answer(block: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What a block answers; random numbers are the same each time."""
    torch.manual_seed(0)
    return block(*args, **kwargs)


def _close(home: nn.Module, anatomy: Anatomy, kept: Sequence[int]) -> None:
    """Let the block run with these heads only, the others multiplied by zero."""
    gates = torch.zeros(anatomy.num_heads)
    gates[list(kept)] = 1.0
    gates = gates.repeat_interleave(anatomy.head_size)

    def hook(module: nn.Module, given: tuple[Any, ...]) -> tuple[Any, ...]:
        return (given[0] * gates, *given[1:])

    home.get_submodule(anatomy.output).register_forward_pre_hook(hook)


def _difference(expected: Tensor, found: Tensor) -> str | None:
    if expected.shape != found.shape:
        return f"it answered in the shape {list(found.shape)}, expected {list(expected.shape)}"
    gap = float((expected - found).abs().max()) if expected.numel() else 0.0
    scale = float(expected.abs().max()) if expected.numel() else 0.0
    if gap <= TOLERANCE * scale or not torch.isfinite(expected).all():
        return None
    return f"its answer differed by {gap / scale:.1e} of its size from the one with them closed"


def floats(output: Any) -> Iterator[Tensor]:
    """All floating point tensors of an output, except caches."""
    if isinstance(output, Tensor):
        if output.is_floating_point():
            yield output
    elif isinstance(output, Mapping):
        for name, value in output.items():
            if name not in _CACHES:
                yield from floats(value)
    elif isinstance(output, tuple | list):
        for value in output:
            yield from floats(value)
