"""GATE: one number per head, multiplied into the input of the output projection.

The sum over heads `Σ g_h · att_h` of the DSP paper's eq. 4 is taken inside the output projection,
so a head is gated exactly where its values enter it: after any attention kernel, before the sum.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from headcount.errors import HeadcountError
from headcount.heads.blocks import AttentionBlock, HeadMap
from headcount.heads.find import find_heads
from headcount.heads.mask import HeadMask

Gates = HeadMask | Tensor | Sequence[float]
_LOCK = threading.Lock()
# The thread that masks a model now, and how often: blocks may be nested.
_HOLDERS: WeakKeyDictionary[nn.Module, tuple[int, int]] = WeakKeyDictionary()


@contextmanager
def masked(model: nn.Module, gates: Gates) -> Iterator[HeadMap]:
    """Multiply every head's output by its gate until the block ends.

    Args:
        model: the model. It is as before when the block ends, also after an exception. A copy that
            is made inside the block has no gates. A model that was compiled before is refused, and
            so is one that another thread masks at the moment.
        gates: a mask, a vector with one number per head, or a matrix (batch, heads) with a row per
            example. For a pruned model, give numbers for the heads that are left, or for all that
            it had originally; those of removed heads are not read. Gradients flow into a tensor
            that requires them. Gates of nested blocks multiply.

    Yields:
        The map of the model's heads, in the order of the gates.
    """
    refuse_compiled(model)
    heads = find_heads(model)
    values = _per_present_head(heads, gates)
    with _held_by_one_thread(model), ExitStack() as hooks:
        start = 0
        for block in heads.blocks:
            stop = start + block.num_heads
            if block.num_heads:
                projection = model.get_submodule(block.path).get_submodule(block.anatomy.output)
                gate = GateHook(lambda: values, start, stop, block)
                hooks.enter_context(projection.register_forward_pre_hook(gate))
            start = stop
        yield heads


def refuse_compiled(model: nn.Module) -> None:
    """Refuse a model that was compiled before: its code would pass the gates by."""
    for module in model.modules():
        # By name: loading torch's compiler to ask for its class would take seconds.
        wrapped = type(module).__name__ == "OptimizedModule"
        if wrapped or getattr(module, "_compiled_call_impl", None) is not None:
            raise HeadcountError(
                f"this {type(model).__name__} was compiled before, so gates that come now would "
                "have no effect; mask the plain model, or compile it inside the block"
            )


@contextmanager
def _held_by_one_thread(model: nn.Module) -> Iterator[None]:
    """Refuse gates of a second thread: a model has one set of them at a time."""
    mine = threading.get_ident()
    with _LOCK:
        owner, depth = _HOLDERS.get(model, (mine, 0))
        if owner != mine:
            raise HeadcountError(
                "this model is masked in another thread at the moment, and its gates are for all "
                "threads; give each thread a copy of the model, or take turns"
            )
        _HOLDERS[model] = (mine, depth + 1)
    try:
        yield
    finally:
        with _LOCK:
            if depth:
                _HOLDERS[model] = (mine, depth)
            else:
                del _HOLDERS[model]


def _per_present_head(heads: HeadMap, gates: Gates) -> Tensor:
    if isinstance(gates, HeadMask):
        gates.refuse_other_model(heads)
        gates = gates.gates()
    values = torch.as_tensor(gates)
    if not values.is_floating_point():
        values = values.to(torch.get_default_dtype())
    if values.dim() not in (1, 2) or values.shape[-1] not in (len(heads), heads.born):
        raise HeadcountError(
            f"these gates have the shape {tuple(values.shape)}, but the model has {len(heads)} "
            f"heads; give {len(heads)} numbers, or a matrix of them with a row per example"
        )
    if values.shape[-1] == len(heads):
        return values
    return values[..., list(heads.indices)]


def _no_gate(module: nn.Module, args: tuple[Any, ...]) -> None:
    """Replaces a gate in a copy of the model, and leaves everything as it is."""


class GateHook:
    """The pre-hook of one block's output projection.

    Args:
        values: returns the gates of all heads that are there now; called in every forward pass.
        start: index of the block's first head among them.
        stop: index after its last head.
        block: the block to gate.
    """

    def __init__(
        self, values: Callable[[], Tensor], start: int, stop: int, block: AttentionBlock
    ) -> None:
        self.values, self.start, self.stop = values, start, stop
        self.name, self.head_size = block.name, block.head_size

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """A copy of a gated model has no gates: nothing would remove them again."""
        return _no_gate

    def __call__(self, module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The input with every head's values multiplied by its gate."""
        combined = args[0]
        return (self.product(combined, self.gate_of(combined)), *args[1:])

    def gate_of(self, combined: Tensor) -> Tensor:
        """The gates of this block's heads, ready to be multiplied with its values."""
        gate = self.values()[..., self.start : self.stop]
        # The type before the device: not all devices have the gates' float64. In the backward
        # pass the order is reversed.
        gate = gate.to(combined.dtype).to(combined.device)
        return self._row_per_example(gate, combined) if gate.dim() == 2 else gate

    def product(self, combined: Tensor, gate: Tensor) -> Tensor:
        """Every head's values times its gate."""
        by_head = combined.unflatten(-1, (self.stop - self.start, self.head_size))
        product: Tensor = (by_head * gate.unsqueeze(-1)).flatten(-2)
        return product

    def _row_per_example(self, gate: Tensor, combined: Tensor) -> Tensor:
        """Bring (batch, heads) to the shape of the input, whose first dimension is the batch.

        Windows and beams of one example follow one another there. If the tokens of all examples
        are in one row, nothing says where an example ends.
        """
        repeats, rest = divmod(combined.shape[0], gate.shape[0])
        if combined.dim() == 2 and repeats != 1:
            raise HeadcountError(
                f"{self.name} sees the tokens of all examples in one row, so a row of gates per "
                "example cannot be applied; give one vector of gates for all"
            )
        if rest or not repeats:
            raise HeadcountError(
                f"there are gates for {gate.shape[0]} examples, but the batch that reached "
                f"{self.name} has {combined.shape[0]}; give a row of gates per example"
            )
        gate = gate.repeat_interleave(repeats, dim=0)
        return gate.view(gate.shape[0], *(1,) * (combined.dim() - 2), gate.shape[1])
