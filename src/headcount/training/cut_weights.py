"""Cut heads out of a model in training and out of its optimizer's state, and put them back.

Only the surgery itself knows which weights belong to a head. So a copy of the model is cut whose
weights are their own indices; the indices that are left say which weights stay.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from headcount.errors import HeadcountError
from headcount.heads.find import find_heads
from headcount.heads.mask import HeadMask
from headcount.surgery.remove import Removal, remove_heads


def cut_with_optimizer(
    model: nn.Module, mask: HeadMask, optimizer: torch.optim.Optimizer | None
) -> Removal:
    """Cut heads out of a model in training, and out of the state of its optimizer.

    Cut weights become new parameters, and the optimizer gets them in place of the old ones. Others
    that hold the old ones (autograd, a wrapper for several processes) know them by their old sizes.

    Args:
        model: the model, which is cut in place.
        mask: the heads that stay.
        optimizer: the model's optimizer, whose state is also cut. None if there is none yet.

    Returns:
        What was removed.

    Raises:
        HeadcountError: the mask does not fit the model, or the optimizer's state is not a number
            per weight. Nothing is then changed.
    """
    left = surviving_elements(model, mask)
    old = dict(model.named_parameters())
    if optimizer is not None:
        _refuse_other_states(optimizer, [old[name] for name in left])
    removal = remove_heads(model, mask)
    renewed: dict[nn.Parameter, tuple[nn.Parameter, Tensor]] = {}
    for module in model.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            if parameter not in renewed:
                path = next(path for path, known in old.items() if known is parameter)
                if path not in left:
                    continue
                # A parameter without elements gets no gradient, and DDP would wait for it.
                trains = parameter.requires_grad and parameter.numel() > 0
                fresh = nn.Parameter(parameter.data, trains)
                renewed[parameter] = (fresh, left[path])
            setattr(module, name, renewed[parameter][0])
    if optimizer is not None:
        _renew(optimizer, renewed)
    return removal


def surviving_elements(model: nn.Module, mask: HeadMask) -> dict[str, Tensor]:
    """Which elements of each parameter would be left: flat indices, in the shape of the cut one.

    Parameters that stay whole are not in the result.
    """
    homes = [model.get_submodule(block.path) for block in find_heads(model).blocks]
    touched = {id(parameter) for home in homes for parameter in home.parameters()}
    apart = {id(p): p for p in model.parameters() if id(p) not in touched}
    twin = copy.deepcopy(model, dict(apart))  # most weights belong to no head and are not copied
    before = {}
    for name, parameter in twin.named_parameters():
        if id(parameter) in apart:
            continue
        parameter.requires_grad_(False)
        parameter.grad = None
        before[name] = parameter.numel()
        # Weights must be floating point; float64 is exact for whole numbers up to 2**53.
        parameter.data = torch.arange(parameter.numel(), dtype=torch.float64).view(parameter.shape)
    remove_heads(twin, mask)
    return {
        name: parameter.data.long()
        for name, parameter in twin.named_parameters()
        if parameter.numel() < before.get(name, 0)
    }


def _renew(
    optimizer: torch.optim.Optimizer, renewed: dict[nn.Parameter, tuple[nn.Parameter, Tensor]]
) -> None:
    for group in optimizer.param_groups:
        params = [renewed[p][0] if p in renewed else p for p in group["params"]]
        group["params"] = [p for p in params if p.numel()]
    for parameter, (fresh, left) in renewed.items():
        state = optimizer.state.pop(parameter, None)
        if state is not None and fresh.numel():
            optimizer.state[fresh] = {
                name: value.flatten()[left.to(value.device)] if _has_elements(value) else value
                for name, value in state.items()
            }


def _refuse_other_states(optimizer: torch.optim.Optimizer, cut: list[nn.Parameter]) -> None:
    """Refuse an optimizer whose state is not a number per weight, before anything is cut."""
    for parameter in cut:
        for value in optimizer.state.get(parameter, {}).values():
            if _has_elements(value) and not (
                value.shape == parameter.shape and value.is_floating_point()
            ):
                raise HeadcountError(
                    f"the state of {type(optimizer).__name__} cannot be cut with the heads; use "
                    "AdamW, Adam or SGD, or a pruner that cuts at the end, such as JointDSP"
                )


def _has_elements(value: object) -> bool:
    """Whether it is a tensor with dimensions; a step counter is not."""
    return isinstance(value, Tensor) and value.dim() > 0


def plain_optimizer(optimizer: Any) -> torch.optim.Optimizer:
    """The optimizer without accelerate's wrapper."""
    inner: torch.optim.Optimizer = getattr(optimizer, "optimizer", optimizer)
    return inner


def expand(small: nn.Module, whole: nn.Module, mask: HeadMask) -> None:
    """Copy the weights of a cut model into one with all heads.

    The other heads stay as they are. Under the mask the whole model then gives what the small one
    gives.

    Args:
        small: a model with the heads of the mask.
        whole: an unpruned model of the same architecture, changed in place.
        mask: the heads of the small model.
    """
    left = surviving_elements(whole, mask)
    trained = dict(small.named_parameters())
    buffers = dict(small.named_buffers())
    with torch.no_grad():
        for name, parameter in whole.named_parameters():
            if name in left:
                values = trained[name].flatten().to(parameter)
                parameter.view(-1)[left[name].flatten().to(parameter.device)] = values
            else:
                parameter.copy_(trained[name])
        for name, buffer in whole.named_buffers():
            if name in buffers and buffers[name].shape == buffer.shape:
                buffer.copy_(buffers[name])
