"""Gates that hold no memory of their own.

For its own gradient a gate keeps the values that go into it, and the output projection keeps for
its weights' gradient what comes out: two tensors where a model without gates keeps one. The second
is the first times the gate, so it is made again when the backward pass asks for it.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.hooks import RemovableHandle

from headcount.gates import GateHook


class LeanGate:
    """The hooks of one block's output projection in training.

    Args:
        gate: what multiplies.
        model: the whole model, which knows whether its activations are checkpointed.
    """

    def __init__(self, gate: GateHook, model: nn.Module) -> None:
        self.gate, self.model = gate, model
        self._saving = ExitStack()

    def register(self, projection: nn.Module) -> list[RemovableHandle]:
        """Put the gate before the projection."""
        return [
            projection.register_forward_pre_hook(self._before),
            # Also after an exception: the memory of others is not to be packed.
            projection.register_forward_hook(self._after, always_call=True),
        ]

    def _before(self, projection: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        combined = args[0]
        gate = self.gate.gate_of(combined)
        product = self.gate.product(combined, gate)
        if gate.requires_grad and product.requires_grad and not self._kept_elsewhere():
            made_of = (combined.detach(), gate.detach())
            place, size, kind = product.data_ptr(), product.numel(), product.dtype

            def pack(saved: Tensor) -> Tensor | torch.Size:
                same = saved.data_ptr() == place and saved.numel() == size
                if same and saved.dtype == kind and saved.is_contiguous():
                    return saved.shape
                return saved.detach()  # the thing itself might hold what holds it

            def unpack(packed: Tensor | torch.Size) -> Tensor:
                if isinstance(packed, Tensor):
                    return packed
                return self.gate.product(*made_of).view(packed)

            self._saving.enter_context(saved_tensors_hooks(pack, unpack))
        return (product, *args[1:])

    def _after(self, projection: nn.Module, args: Any, output: Any) -> None:
        self._saving.close()

    def _kept_elsewhere(self) -> bool:
        """Whether checkpointing or a compiler decides what is kept."""
        checkpoints = getattr(self.model, "is_gradient_checkpointing", False)
        return checkpoints or torch.compiler.is_compiling()
