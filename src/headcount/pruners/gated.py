"""A model with a pruner's gates in place, which take no memory of their own.

In training mode the heads are multiplied by the pruner's gates of this step, in evaluation mode by
its mask, without noise.

A plain gate would keep its input for its own gradient, and the output projection its input, the
product, for that of its weights: two tensors where a model without gates keeps one. So the product
is not kept, but computed again when the backward pass needs it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.hooks import RemovableHandle

from headcount.gates import GateHook, refuse_compiled
from headcount.heads.find import find_heads

if TYPE_CHECKING:
    from headcount.pruners.base import Pruner

# A gate below this is closed. Products with gates between 1e-20 and 1e-45 are denormal numbers, on
# which a CPU is up to fifty times slower.
CLOSED = 1e-9


class Gated:
    """Holds the hooks that multiply by the gates; made by `pruner.attached(model)`."""

    def __init__(self, model: nn.Module, pruner: Pruner) -> None:
        self.model, self.pruner = model, pruner
        self._hooks = ExitStack()
        self._values: Tensor | None = None
        self._values_train = False
        self._training_values: Callable[[], Tensor] = lambda: self.spread(pruner.gates())

    def __enter__(self) -> Gated:
        refuse_compiled(self.model)
        here = find_heads(self.model)  # some may have been cut since the pruner was bound
        place = {index: place for place, index in enumerate(self.pruner.bound().indices)}
        self._here = torch.tensor([place[index] for index in here.indices])
        start = 0
        for block in here.blocks:
            stop = start + block.num_heads
            if block.num_heads:
                home = self.model.get_submodule(block.path)
                projection = home.get_submodule(block.anatomy.output)
                gate = MemorySavingGate(GateHook(self._current, start, stop, block), self.model)
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
        # Made here, not in the first block: gradient checkpointing runs a block twice, and expects
        # it to do the same both times.
        self._current()

    def _current(self) -> Tensor:
        # Check the mode every time: generation calls an encoder without the whole model.
        if self._values is None or self._values_train != self._trains:
            self._values_train = self._trains
            self._values = self._made()
        return self._values

    @property
    def _trains(self) -> bool:
        """Whether the model trains; a sentence encoder does so with its own pass evaluating."""
        return self.model.training or getattr(self.model, "in_training_step", False)

    # Not worth compiling with the model: exact sums in double precision, and sets of heads.
    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _made(self) -> Tensor:
        if self._trains:
            return self._training_values()
        return self.spread(self.pruner.mask_gates())

    def take_values_from(self, source: Callable[[], Tensor]) -> None:
        """Multiply by other values in training.

        The trainer gives one leaf per step, to gather its gradient over micro-batches.
        """
        self._training_values = source

    def spread(self, gates: Tensor) -> Tensor:
        """The gates of all heads that are there, ready to multiply, from those of the scope."""
        values = torch.ones(len(self.pruner.bound()), dtype=gates.dtype, device=gates.device)
        values = values.index_put((self._places(gates.device),), applied(gates))
        return values if len(self._here) == len(values) else values[self._here.to(gates.device)]

    def gather(self, gradient: Tensor) -> Tensor:
        """The gradient of the scope's gates from that of all heads that are there; 0 if cut."""
        whole = gradient.new_zeros(len(self.pruner.bound()))
        whole[self._here.to(gradient.device)] = gradient
        return whole[self.pruner.places]

    def _places(self, device: torch.device) -> Tensor:
        return torch.tensor(self.pruner.places, device=device)

    def begin_step(self, step: int, total_steps: int) -> None:
        """Set temperature and noise for a training step.

        Args:
            step: optimizer steps done. Micro-batches of one step share it, and so its noise.
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
    """Set closed gates to exactly 0, and keep their gradients."""
    return torch.where(gates.abs() < CLOSED, gates - gates.detach(), gates)


class MemorySavingGate:
    """The hooks of one block's output projection: multiply by the gate, and save no product.

    Args:
        gate: multiplies the heads.
        model: the whole model, which knows whether its activations are checkpointed.
    """

    def __init__(self, gate: GateHook, model: nn.Module) -> None:
        self.gate, self.model = gate, model
        self._saving = ExitStack()

    def register(self, projection: nn.Module) -> list[RemovableHandle]:
        """Put the gate before the projection."""
        return [
            projection.register_forward_pre_hook(self._before),
            # Also after an exception, or tensors that other modules save would be packed.
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
                return saved.detach()  # the tensor itself could make a reference cycle

            def unpack(packed: Tensor | torch.Size) -> Tensor:
                if isinstance(packed, Tensor):
                    return packed
                return self.gate.product(*made_of).view(packed)

            self._saving.enter_context(saved_tensors_hooks(pack, unpack))
        return (product, *args[1:])

    def _after(self, projection: nn.Module, args: Any, output: Any) -> None:
        self._saving.close()

    def _kept_elsewhere(self) -> bool:
        """Whether checkpointing or a compiler decides what is saved."""
        checkpoints = getattr(self.model, "is_gradient_checkpointing", False)
        return checkpoints or torch.compiler.is_compiling()
