"""Forward passes under many masks that share what the masks do not change.

A mask changes nothing before its first closed head. So the unpruned model runs once per batch. For
each mask, the modules that end before that head is read return what they returned then, and only
the rest is computed. Several masks run side by side in one batch, each with its own gates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from headcount.analysis.ablation.trace import Call, Key, each_leaf, projection_path, trace
from headcount.batch import Batch, batch_size
from headcount.errors import HeadcountError
from headcount.gates import GateHook, masked
from headcount.heads.blocks import HeadMap
from headcount.heads.find import find_heads
from headcount.heads.mask import HeadMask

ROWS = 64  # examples that run through the model side by side
_SMALLEST = 8  # examples per batch; smaller matrix products are slow
_PROBES = 2  # examples that the shared passes are checked on
_TOLERANCE = 1e-4  # allowed difference of the logits, relative to the largest if above 1


@dataclass(frozen=True)
class Plan:
    """Which calls need not be computed again.

    Attributes:
        starts: for each block, when its output projection is first called, on the trace's clock.
        calls: for each block, the outermost calls that end before that.
        grows: for each call and each tensor that it returns, whether there is a row per example.
        stacks: whether several masks can run through the model side by side.
    """

    starts: tuple[int, ...]
    calls: tuple[tuple[Call, ...], ...]
    grows: dict[Key, tuple[bool, ...]]
    stacks: bool = True


class MaskedPasses:
    """The logits of a model under many masks, the same as under each alone.

    Args:
        model: the model, in evaluation mode; it is not changed.
        example: a batch like those to come. The shared passes are checked on its first examples. If
            they are wrong for this model, every mask gets a whole pass.
        rows: examples that run through the model side by side; more needs more memory.
    """

    def __init__(self, model: nn.Module, example: Batch, rows: int = ROWS) -> None:
        self.model, self.rows = model, rows
        self.heads = find_heads(model)
        self.plan = self._proved(_first(example, _PROBES))

    def run(
        self, batch: Batch, masks: Sequence[HeadMask], take: Callable[[Tensor], Tensor]
    ) -> list[Tensor]:
        """Apply `take` to the logits of a batch under every mask.

        Args:
            batch: the inputs of the model.
            masks: the heads to leave open. A mask of all heads costs nothing extra.
            take: called with the logits of the batch under one mask; its results are returned.
        """
        gates = torch.stack([mask.gates()[list(self.heads.indices)] for mask in masks])
        return self._run(self.plan, batch, gates, take)

    def _run(
        self, plan: Plan, batch: Batch, gates: Tensor, take: Callable[[Tensor], Tensor]
    ) -> list[Tensor]:
        logits, recorded = self._record(plan, batch)
        closed = torch.stack([(part != 1).any(1) for part in self._by_block(gates)], dim=1)
        taken: dict[int, Tensor] = {}
        groups: dict[int, list[int]] = {}
        for row, blocks in enumerate(closed.tolist()):
            first = [block for block, is_closed in enumerate(blocks) if is_closed]
            if first:
                groups.setdefault(min(first, key=plan.starts.__getitem__), []).append(row)
            else:
                taken[row] = take(logits)
        size = batch_size(batch)
        copies = max(1, self.rows // size) if plan.stacks else 1
        for block, members in groups.items():
            for start in range(0, len(members), copies):
                some = members[start : start + copies]
                found = self._replay(plan, batch, recorded, block, gates[some])
                for row, part in zip(some, found.chunk(len(some)), strict=True):
                    taken[row] = take(part)
        return [taken[row] for row in range(len(gates))]

    def _record(self, plan: Plan, batch: Batch) -> tuple[Tensor, dict[Key, Any]]:
        """The logits of the unpruned model, and what the calls of the plan returned."""
        recorded: dict[Key, Any] = {}
        made: dict[str, int] = {}

        def keep(path: str) -> Callable[..., None]:
            def note(module: nn.Module, args: Any, output: Any) -> None:
                key = (path, made.get(path, 0))
                made[path] = key[1] + 1
                if key in plan.grows:  # copied, since the model may change it in place
                    recorded[key] = each_leaf(output, _copied)

            return note

        with ExitStack() as hooks:
            for path in dict.fromkeys(path for path, _ in plan.grows):
                module = self.model.get_submodule(path)
                hooks.enter_context(module.register_forward_hook(keep(path)))
            return self._logits(batch), recorded

    def _replay(
        self, plan: Plan, batch: Batch, recorded: dict[Key, Any], block: int, gates: Tensor
    ) -> Tensor:
        """Logits of the batch under each row of gates, one mask after the other."""
        copies, size = len(gates), batch_size(batch)
        answers: dict[str, list[Any]] = {}
        for call in plan.calls[block]:
            tile = partial(_tiled, grows=iter(plan.grows[call.key]), copies=copies)
            answers.setdefault(call.path, []).append(each_leaf(recorded[call.key], tile))
        rows = gates.repeat_interleave(size, dim=0) if plan.stacks else gates[0]
        with ExitStack() as stack:
            for path, given in answers.items():
                stack.enter_context(_answering(self.model.get_submodule(path), given))
            for place, values in enumerate(self._by_block(rows)):
                if (values != 1).any():
                    of = self.heads.blocks[place]
                    projection = self.model.get_submodule(projection_path(of))
                    hook = GateHook(partial(torch.as_tensor, values), 0, of.num_heads, of)
                    stack.enter_context(projection.register_forward_pre_hook(hook))
            return self._logits(tiled(batch, copies))

    def _logits(self, batch: Batch) -> Tensor:
        with torch.no_grad():
            logits: Tensor = self.model(**batch).logits
        return logits

    def _by_block(self, gates: Tensor) -> tuple[Tensor, ...]:
        sizes = [block.num_heads for block in self.heads.blocks]
        return tuple(torch.split(gates, sizes, dim=-1))

    def _proved(self, probe: Batch) -> Plan:
        """The plan that shares most and still gives the same as masking."""
        none = Plan((0,) * len(self.heads.blocks), ((),) * len(self.heads.blocks), {})
        for shares in (True, False):
            try:
                plan = self._plan(probe) if shares else none
                if self._is_right(plan, probe):
                    return plan
            except (HeadcountError, RuntimeError, ValueError, TypeError, KeyError):
                continue  # a model that works differently gets whole passes
        return replace(none, stacks=False)

    def _plan(self, probe: Batch) -> Plan:
        calls = trace(self.model, self.heads, probe)
        doubled = trace(self.model, self.heads, tiled(probe, 2))
        if [call.key for call in calls] != [call.key for call in doubled]:
            raise HeadcountError("the model calls other modules for more examples")
        grows: dict[Key, tuple[bool, ...]] = {}
        for once, twice in zip(calls, doubled, strict=True):
            grown = _grown(once.shapes, twice.shapes)
            if grown is not None:
                grows[once.key] = grown
        begun = {call.key: call.begins for call in calls}
        starts = tuple(begun[projection_path(block), 0] for block in self.heads.blocks)
        shared = tuple(
            _outermost([c for c in calls if c.ends < start and c.key in grows]) for start in starts
        )
        used = {call.key for some in shared for call in some}
        return Plan(starts, shared, {key: grows[key] for key in used})

    def _is_right(self, plan: Plan, probe: Batch) -> bool:
        """Whether the plan gives the same as masking, with one head left in each block."""
        heads = self.heads
        everything = HeadMask.all(heads)
        # Two masks for the first block, so that some run side by side.
        kept = [i for b in heads.blocks for i in b.indices[: 1 if b.offset else 2]]
        owner = {i: set(b.indices) for b in heads.blocks for i in b.indices}
        masks = [everything - HeadMask.from_indices(heads, owner[i] - {i}) for i in kept]
        gates = torch.stack([mask.gates()[list(heads.indices)] for mask in masks])
        found = self._run(plan, probe, gates, torch.clone)
        for mask, given in zip(masks, found, strict=True):
            with masked(self.model, mask):
                expected = self._logits(probe)
            scale = max(1.0, float(expected.abs().max()))
            if not float((expected - given).abs().max()) <= _TOLERANCE * scale:
                return False
        return True


def small_batch(heads: HeadMap, rows: int) -> int:
    """The batch size with which a block's masks fill the rows; small batches need less padding."""
    most = max((block.num_heads for block in heads.blocks), default=1)
    return min(rows, max(_SMALLEST, rows // max(most, 1)))


def tiled(batch: Batch, copies: int) -> dict[str, Any]:
    """The batch repeated, one copy after the other."""
    size = batch_size(batch)
    return {
        name: _repeated(value, copies)
        if isinstance(value, Tensor) and value.dim() and value.shape[0] == size
        else value
        for name, value in batch.items()
    }


def _first(batch: Batch, examples: int) -> dict[str, Any]:
    size = batch_size(batch)
    return {
        name: value[:examples]
        if isinstance(value, Tensor) and value.dim() and value.shape[0] == size
        else value
        for name, value in batch.items()
    }


def _repeated(value: Tensor, copies: int) -> Tensor:
    return value if copies == 1 else value.repeat(copies, *(1,) * (value.dim() - 1))


def _copied(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else value


def _tiled(value: Any, grows: Iterator[bool], copies: int) -> Any:
    if not isinstance(value, Tensor):
        return value
    # Always copied: the model may change it in place, and the next pass needs it unchanged.
    return _repeated(value, copies) if next(grows) and copies > 1 else value.clone()


def _grown(
    once: tuple[tuple[int, ...], ...] | None, twice: tuple[tuple[int, ...], ...] | None
) -> tuple[bool, ...] | None:
    """Whether each tensor has twice the rows for twice the examples; None if unclear."""
    if once is None or twice is None or len(once) != len(twice):
        return None
    grown = []
    for a, b in zip(once, twice, strict=True):
        if a != b and (not a or b != (2 * a[0], *a[1:])):
            return None
        grown.append(a != b)
    return tuple(grown)


def _outermost(calls: Sequence[Call]) -> tuple[Call, ...]:
    """The calls that are not inside another one of them, in the order of the forward pass."""
    kept: list[Call] = []
    for call in sorted(calls, key=lambda c: c.begins):
        if not kept or call.begins > kept[-1].ends:
            kept.append(call)
    return tuple(kept)


@contextmanager
def _answering(module: nn.Module, answers: Sequence[Any]) -> Iterator[None]:
    """Let a module return these answers in its next calls, and compute after that."""
    compute, own = module.forward, "forward" in vars(module)
    left = iter(answers)
    nothing = object()

    def forward(*args: Any, **kwargs: Any) -> Any:
        answer = next(left, nothing)
        return compute(*args, **kwargs) if answer is nothing else answer

    module.forward = forward
    try:
        yield
    finally:
        if own:
            module.forward = compute
        else:
            del module.forward
