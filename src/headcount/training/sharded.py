"""A pruner beside a model whose weights are spread over processes (FSDP 1 and 2).

The pruner's few parameters stay whole on every process. They share the model's optimizer, but
`accelerate` and torch know the optimizer of a sharded model by the model's names, and trip over a
parameter that has none; so they are not shown it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, Trainer

from headcount.atomic import write_whole
from headcount.pruners.base import Pruner
from headcount.training.saved import OPTIMIZER


@contextmanager
def showing(
    optimizer: torch.optim.Optimizer, pruner: Pruner, pruner_only: bool = False
) -> Iterator[torch.optim.Optimizer]:
    """Let an optimizer hold the model's parameters only, or the pruner's, for a while.

    Args:
        optimizer: holds both; the pruner's groups are its last ones when the block ends.
        pruner: whose parameters to hide.
        pruner_only: hide the model's instead.

    Yields:
        The optimizer without the wrapper of `accelerate`.
    """
    optimizer = getattr(optimizer, "optimizer", optimizer)
    own = {id(p) for p in pruner.parameters()}

    def is_own(parameter: Tensor) -> bool:
        return id(parameter) in own

    groups, state = optimizer.param_groups, optimizer.state
    hidden_groups = [g for g in groups if any(map(is_own, g["params"])) != pruner_only]
    hidden_state = {p: value for p, value in state.items() if is_own(p) != pruner_only}
    optimizer.param_groups = [g for g in groups if not any(g is hidden for hidden in hidden_groups)]
    for parameter in hidden_state:
        del state[parameter]
    try:
        yield optimizer
    finally:
        shown = optimizer.param_groups
        both = (hidden_groups, shown) if pruner_only else (shown, hidden_groups)
        optimizer.param_groups = [*both[0], *both[1]]
        optimizer.state.update(hidden_state)


def preparing(prepare: Callable[..., Any], pruner: Pruner) -> Callable[..., Any]:
    """`Accelerator.prepare`, which exchanges the optimizer's parameters for shards by name."""

    def without_pruner(*objects: Any, **options: Any) -> Any:
        with ExitStack() as hidden:
            for one in objects:
                if isinstance(one, torch.optim.Optimizer):
                    hidden.enter_context(showing(one, pruner))
            return prepare(*objects, **options)

    return without_pruner


def skeleton(model: PreTrainedModel) -> PreTrainedModel:
    """A copy of a model without its weights: what to fill when they have been gathered.

    Sharding changes a model in place, and torch has no way back.
    """
    hollow = {
        id(p): nn.Parameter(torch.empty_like(p, device="meta"), requires_grad=p.requires_grad)
        for p in model.parameters()
    }
    return copy.deepcopy(model, dict(hollow))


def gathered(skeleton: PreTrainedModel, sharded: nn.Module) -> PreTrainedModel:
    """The whole model, on every process; all of them have to call this.

    Args:
        skeleton: of the model as it was before it was sharded.
        sharded: the model, in the outermost wrapper.
    """
    weights = _whole_weights(sharded)
    # A copy once more, so that weights which are shared stay so.
    filled = {
        id(p): nn.Parameter(weights[name], requires_grad=p.requires_grad)
        for name, p in skeleton.named_parameters()
    }
    model = copy.deepcopy(skeleton, dict(filled))
    model.load_state_dict(weights)
    model.train(sharded.training)
    return model


def _whole_weights(sharded: nn.Module) -> dict[str, Tensor]:
    # Not every build of torch has them.
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.tensor import DTensor

    # FSDP 2 gives its shards, so that no device has to hold more than one whole weight at a time.
    is_first = bool(FullyShardedDataParallel.fsdp_modules(sharded))
    state: dict[str, Any] = get_model_state_dict(
        sharded, options=StateDictOptions(full_state_dict=is_first)
    )
    weights = {}
    while state:
        name, value = state.popitem()
        whole = value.full_tensor() if isinstance(value, DTensor) else value
        weights[name] = whole.detach().to("cpu", copy=True)
    return weights


class ShardedTrainer(Trainer):
    """A `Trainer` that keeps the optimizer's state of a pruner beside that of a sharded model."""

    pruner: Pruner

    def _optimizer(self) -> torch.optim.Optimizer:
        assert self.optimizer is not None
        return self.optimizer

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        if not self.is_fsdp_enabled:
            super()._save_optimizer_and_scheduler(output_dir)
            return
        with showing(self._optimizer(), self.pruner):
            super()._save_optimizer_and_scheduler(output_dir)
        if self.args.should_save:
            with showing(self._optimizer(), self.pruner, pruner_only=True) as own:
                state = own.state_dict()
            write_whole(Path(output_dir) / OPTIMIZER, lambda path: torch.save(state, path))

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        if checkpoint is None or not self.is_fsdp_enabled:
            super()._load_optimizer_and_scheduler(checkpoint)
            return
        own_state = Path(checkpoint) / OPTIMIZER
        with showing(self._optimizer(), self.pruner) as others:
            if any(group["params"] for group in others.param_groups):
                super()._load_optimizer_and_scheduler(checkpoint)
            elif own_state.is_file() and self.lr_scheduler is not None:
                # Of a frozen model: torch refuses to load an optimizer of nothing.
                scheduler = torch.load(Path(checkpoint) / "scheduler.pt", weights_only=True)
                self.lr_scheduler.load_state_dict(scheduler)
        # Not there with `save_only_model`.
        if own_state.is_file():
            with showing(self._optimizer(), self.pruner, pruner_only=True) as own:
                state = torch.load(own_state, map_location="cpu", weights_only=True)
                own.load_state_dict(state)
