"""A pruner beside a model whose weights are spread over processes (FSDP 1 and 2).

The pruner's few parameters stay whole on every process, and share the model's optimizer. But
`accelerate` and torch handle the optimizer of a sharded model by the names of the model's
parameters, and fail on a parameter that has none. So the pruner's are hidden from them.

A shard is a range of rows, and says nothing about heads. So where heads are cut while training
(FSDP 2 only), every process gathers the whole model and the optimizer's whole state, and cuts them.
`Trainer` then shards what is left.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from headcount.atomic import write_atomically
from headcount.pruners.base import Pruner
from headcount.training.checkpoint_files import OPTIMIZER

BEGINS = "begins"  # in the file of the pruner's part: whether the model's part has no state yet


@contextmanager
def showing(
    optimizer: torch.optim.Optimizer, pruner: Pruner, pruner_only: bool = False
) -> Iterator[torch.optim.Optimizer]:
    """Let an optimizer hold only the model's parameters, or only the pruner's, in this block.

    Args:
        optimizer: holds both. When the block ends, the pruner's groups are its last ones.
        pruner: the pruner whose parameters to hide.
        pruner_only: hide the model's parameters instead.

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
    """`Accelerator.prepare`, which replaces parameters by shards, without the pruner's.

    It does not see parameters without elements either, of blocks that lost all their heads: torch
    shards them but cannot gather them. They stay as they are, on every process.
    """

    def of_the_rest(*objects: Any, **options: Any) -> Any:
        with ExitStack() as hidden:
            for one in objects:
                if isinstance(one, torch.optim.Optimizer):
                    hidden.enter_context(showing(one, pruner))
                elif isinstance(one, nn.Module):
                    hidden.enter_context(_without_empty(one))
            return prepare(*objects, **options)

    return of_the_rest


@contextmanager
def _without_empty(model: nn.Module) -> Iterator[None]:
    """Leave a model without the parameters that have no elements in this block."""
    taken = []
    for module in model.modules():
        own = module._parameters
        if any(p is not None and not p.numel() for p in own.values()):
            taken.append((own, dict(own)))
            for name, p in taken[-1][1].items():
                if p is not None and not p.numel():
                    del own[name]
    try:
        yield
    finally:
        for own, before in taken:
            now = {name: own.get(name, p) for name, p in before.items()}  # in the same order
            own.clear()
            own.update(now)


def skeleton(model: PreTrainedModel) -> PreTrainedModel:
    """A copy of a model without its weights, for `gathered` to fill.

    Sharding changes a model in place, and torch cannot undo it.
    """
    hollow = {
        id(p): nn.Parameter(torch.empty_like(p, device="meta"), requires_grad=p.requires_grad)
        for p in model.parameters()
    }
    return copy.deepcopy(model, dict(hollow))


def gathered(skeleton: PreTrainedModel, sharded: nn.Module) -> PreTrainedModel:
    """The whole model, on every process; all of them have to call this.

    `skeleton` was made before the model was sharded; `sharded` is the model in its outermost
    wrapper.
    """
    weights = _whole_weights(sharded)
    # Another copy, so that shared weights stay shared.
    filled = {
        id(p): nn.Parameter(weights[name], requires_grad=p.requires_grad)
        for name, p in skeleton.named_parameters()
    }
    model = copy.deepcopy(skeleton, dict(filled))
    model.load_state_dict(weights)
    model.train(sharded.training)
    return model


def is_sharded(model: nn.Module) -> bool:
    """Whether this process has only shards of the model's parameters."""
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.tensor import DTensor

    is_first = bool(FullyShardedDataParallel.fsdp_modules(model))
    return is_first or any(isinstance(p, DTensor) for p in model.parameters())


def gather_optimizer(
    optimizer: torch.optim.Optimizer, sharded: nn.Module, whole: nn.Module
) -> None:
    """Let an optimizer hold a whole model and the whole state; all processes have to call this.

    The state moves to memory, one tensor after another: no device has to hold more than one.

    Args:
        optimizer: holds the parameters of `sharded`, and maybe others, which stay as they are.
        sharded: a model that FSDP 2 shards.
        whole: what `gathered` made of it.
    """
    from torch.distributed.tensor import DTensor

    # Names may differ: wrappers, such as FSDP's own checkpointing of activations, add to them.
    pairs = list(zip(sharded.parameters(), whole.parameters(), strict=True))
    assert all(shard.shape == parameter.shape for shard, parameter in pairs)
    optimizer = getattr(optimizer, "optimizer", optimizer)
    for shard, parameter in pairs:
        if (state := optimizer.state.pop(shard, None)) is not None:
            optimizer.state[parameter] = {
                name: value.full_tensor().to("cpu", copy=True)
                if isinstance(value, DTensor)
                else value
                for name, value in state.items()
            }
    in_place_of = dict(pairs)
    for group in optimizer.param_groups:
        group["params"] = [in_place_of.get(p, p) for p in group["params"]]


def _whole_weights(sharded: nn.Module) -> dict[str, Tensor]:
    # Not every build of torch has these modules.
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.tensor import DTensor

    # FSDP 2 gives its shards: no device has to hold more than one whole weight at a time.
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


def save_optimizer(
    optimizer: torch.optim.Optimizer,
    pruner: Pruner,
    folder: Path,
    save: Callable[[], None],
    own: bool,
) -> None:
    """Save the optimizer of a sharded model, and the pruner's part of it in a file of its own.

    Args:
        optimizer: holds the parameters of both.
        pruner: the pruner whose parameters `save` must not see.
        folder: the folder of the checkpoint.
        save: saves the optimizer as `Trainer` does.
        own: whether this process writes the pruner's part.
    """
    with showing(optimizer, pruner) as of_model:
        # Torch would save a state as after one step, of zeros; Adam would then begin with step 2.
        begins = not of_model.state
        save()
    if own:
        with showing(optimizer, pruner, pruner_only=True) as of_pruner:
            state = {**of_pruner.state_dict(), BEGINS: begins}
        write_atomically(folder / OPTIMIZER, lambda path: torch.save(state, path))


def load_optimizer(
    optimizer: torch.optim.Optimizer,
    pruner: Pruner,
    folder: Path,
    load: Callable[[], None],
    scheduler: Any,
) -> None:
    """Load what `save_optimizer` wrote; `load` loads optimizer and scheduler as `Trainer` does."""
    of_pruner = folder / OPTIMIZER
    with showing(optimizer, pruner) as others:
        if any(group["params"] for group in others.param_groups):
            load()
        elif of_pruner.is_file() and scheduler is not None:
            # The model is frozen, and torch refuses to load an optimizer without parameters.
            scheduler.load_state_dict(torch.load(folder / "scheduler.pt", weights_only=True))
    # With `save_only_model` there is no such file.
    if of_pruner.is_file():
        state = torch.load(of_pruner, map_location="cpu", weights_only=True)
        with showing(optimizer, pruner, pruner_only=True) as own:
            own.load_state_dict(state)
        if state.get(BEGINS, False):
            with showing(optimizer, pruner) as others:
                others.state.clear()
