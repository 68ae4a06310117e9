"""A pruner beside a model whose weights are spread over processes (FSDP 1 and 2).

The pruner's few parameters stay whole on every process. They share the model's optimizer, but
`accelerate` and torch know the optimizer of a sharded model by the model's names, and trip over a
parameter that has none; so they are not shown it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from headcount.pruners.base import Pruner


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
