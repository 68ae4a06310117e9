"""A model with a pruner's gates in place.

In training mode every forward pass is multiplied by the pruner's gates of this step; in evaluation
mode by its mask, without noise.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.hooks import RemovableHandle

from headcount.gates import GateHook
from headcount.heads.find import find_heads

if TYPE_CHECKING:
    from headcount.pruners.base import Pruner

# Products with gates between 1e-20 and 1e-45 are denormal numbers, on which a CPU is up to fifty
# times slower; a gate this small is a closed one.
CLOSED = 1e-9


class Gated:
    """Holds the hooks; made by `pruner.attached(model)`."""

    def __init__(self, model: nn.Module, pruner: Pruner) -> None:
        self.model, self.pruner = model, pruner
        self._hooks = ExitStack()
        self._values: Tensor | None = None
        self._values_train = False
        # The trainer puts one leaf per step here, to gather its gradient over micro-batches.
        self.training_values: Callable[[], Tensor] = lambda: self.spread(pruner.gates())

    def __enter__(self) -> Gated:
        here = find_heads(self.model)  # some may have been cut since the pruner got to know them
        place = {index: place for place, index in enumerate(self.pruner.bound().indices)}
        self._here = torch.tensor([place[index] for index in here.indices])
        start = 0
        for block in here.blocks:
            stop = start + block.num_heads
            if block.num_heads:
                home = self.model.get_submodule(block.path)
                projection = home.get_submodule(block.anatomy.output)
                gate = LeanGate(GateHook(self._current, start, stop, block), self.model)
                for hook in gate.register(projection):
                    self._hooks.enter_context(hook)
            start = stop
        self._hooks.enter_context(self.model.register_forward_pre_hook(self._new_pass))
        return self

    def __exit__(self, *exception: object) -> None:
        self._hooks.close()

    def _new_pass(self, module: nn.Module, args: Any) -> None:
        # A new graph for each forward pass, so that each can be followed by its backward pass.
        self._values = None
        # Made here, not in the first block: gradient checkpointing runs a block twice, and wants
        # the same done both times.
        self._current()

    def _current(self) -> Tensor:
        # The mode is asked for every time: generation calls an encoder without the whole model.
        if self._values is None or self._values_train != self.model.training:
            self._values_train = self.model.training
            self._values = self._made()
        return self._values

    # Exact sums in double precision and sets of heads are nothing to compile with the model.
    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _made(self) -> Tensor:
        if self.model.training:
            return self.training_values()
        return self.spread(self.pruner.mask_gates())

    def spread(self, gates: Tensor) -> Tensor:
        """The gates of all heads that are there, as they are multiplied, from the scope's."""
        values = torch.ones(len(self.pruner.bound()), dtype=gates.dtype, device=gates.device)
        values = values.index_put((self._places(gates.device),), applied(gates))
        return values if len(self._here) == len(values) else values[self._here.to(gates.device)]

    def gather(self, gradient: Tensor) -> Tensor:
        """The gradient of the scope's gates from that of all heads that are there; else 0."""
        whole = gradient.new_zeros(len(self.pruner.bound()))
        whole[self._here.to(gradient.device)] = gradient
        return whole[self.pruner.places]

    def _places(self, device: torch.device) -> Tensor:
        return torch.tensor(self.pruner.places, device=device)

    def begin_step(self, step: int, total_steps: int) -> None:
        """Set temperature and noise for a training step.

        Args:
            step: optimizer steps so far. Micro-batches of one step share it, and so its noise.
            total_steps: optimizer steps of the whole training.
        """
        self._values = None
        self.pruner.begin_step(step, total_steps)

    def penalty(self) -> Tensor:
        """What the pruner adds to the loss."""
        return self.pruner.penalty()

    def parameter_groups(self) -> list[dict[str, Any]]:
        """The pruner's groups for the optimizer."""
        return self.pruner.parameter_groups()


def applied(gates: Tensor) -> Tensor:
    """Gates as they are multiplied: a closed one is exactly 0, and its gradient is kept."""
    return torch.where(gates.abs() < CLOSED, gates - gates.detach(), gates)


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
