"""Training that gets smaller: heads that cannot come back are cut out in the middle of it.

A training is stopped between two steps, the model and its optimizer's state are cut, a checkpoint
is written, and the training goes on from there. `Trainer` resumes exactly, so everything that
depends on the size of the weights (wrappers of several processes, the optimizer) is made anew, and
a run that dies after the cut resumes from a small checkpoint as from any other.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import Trainer, TrainingArguments
from transformers.trainer_utils import TrainOutput

from headcount.errors import HeadcountError
from headcount.heads.find import find_heads
from headcount.heads.mask import HeadMask
from headcount.surgery import Removal, remove_heads

WORTH = 1 / 3  # share of the heads that must be gone before the training is stopped for it


class ShrinkingTrainer(Trainer):
    """A `Trainer` that can cut heads while it trains."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._given_optimizer = self.optimizer
        self._to_stay: Callable[[], HeadMask] | None = None

    def cut_after_step(self, staying: Callable[[], HeadMask]) -> None:
        """Ask for a pause at the end of this step, in which all heads but these are cut."""
        self._to_stay = staying
        self.control.should_training_stop = True

    @property
    def is_pausing(self) -> bool:
        """Whether the training stops only to cut heads, and then goes on."""
        return self._to_stay is not None

    def _maybe_log_save_evaluate(self, *args: Any, **kwargs: Any) -> None:
        if self.is_pausing:
            # The checkpoint after the cut has the same name, and is to be there whole or not at
            # all, whoever else asks for one here.
            self.control.should_save = False
        super()._maybe_log_save_evaluate(*args, **kwargs)

    def train(self, resume_from_checkpoint: Any = None, *args: Any, **kwargs: Any) -> TrainOutput:
        """Train as `Trainer` does, with pauses to cut heads."""
        output: TrainOutput = super().train(resume_from_checkpoint, *args, **kwargs)
        while self._to_stay is not None:
            self.cut(self._to_stay())
            self._to_stay = None
            if self.state.global_step >= self.state.max_steps:
                break
            self._save_checkpoint(self.accelerator.unwrap_model(self.model), trial=None)
            folder = Path(self._get_output_dir(trial=None)) / f"checkpoint-{self.state.global_step}"
            self.control = self.callback_handler.on_save(self.args, self.state, self.control)
            self.accelerator.wait_for_everyone()
            self._forget_sizes()
            output = super().train(str(folder), *args, **kwargs)
        return output

    def cut(self, mask: HeadMask) -> None:
        """Cut heads out of the model, and out of the optimizer's state if there is one.

        Args:
            mask: the heads that stay.
        """
        model = self.accelerator.unwrap_model(self.model)
        optimizer = None if self.optimizer is None else plain_optimizer(self.optimizer)
        cut_with_optimizer(model, mask, optimizer)

    def _forget_sizes(self) -> None:
        """Let the next training wrap the model anew, and make an optimizer for its weights."""
        self.model_wrapped = self.model = self.accelerator.unwrap_model(self.model)
        if self._given_optimizer is None:
            self.optimizer = self.lr_scheduler = None


def refuse_uncuttable(args: TrainingArguments, sharded: bool) -> None:
    """Tell of settings with which a training cannot be paused and go on smaller."""
    for is_so, what in (
        (sharded, "FSDP or DeepSpeed, which shard the model"),
        (args.load_best_model_at_end, "load_best_model_at_end, which takes an earlier checkpoint"),
        (args.save_only_model, "save_only_model, which leaves the optimizer out of checkpoints"),
        (args.ignore_data_skip, "ignore_data_skip, which begins the epoch anew"),
    ):
        if is_so:
            raise HeadcountError(
                f"heads cannot be cut while training with {what}; do without it, or take a pruner "
                "that cuts at the end: JointDSP, or any with commit_at=None and shed=False but "
                "Handover"
            )


def cut_with_optimizer(
    model: nn.Module, mask: HeadMask, optimizer: torch.optim.Optimizer | None
) -> Removal:
    """Cut heads out of a model in training, and out of the state of its optimizer.

    Cut weights become new parameters, which the optimizer gets in place of the old ones: whoever
    follows those (autograd, a wrapper for several processes) knows them by their old sizes.

    Args:
        model: cut in place.
        mask: the heads that stay.
        optimizer: of the model; its state is cut alike. None for a model that has none yet.

    Returns:
        What was removed.
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
                # What has no elements left gets no gradient, for which DDP would wait.
                trains = parameter.requires_grad and parameter.numel() > 0
                fresh = nn.Parameter(parameter.data, trains)
                renewed[parameter] = (fresh, left[path])
            setattr(module, name, renewed[parameter][0])
    if optimizer is not None:
        _renew(optimizer, renewed)
    return removal


def surviving_elements(model: nn.Module, mask: HeadMask) -> dict[str, Tensor]:
    """Which elements of each parameter would be left, by flat index in the shape of the rest.

    A twin of the model whose weights are their own indices is cut, and tells.

    Returns:
        By name; parameters that stay whole are not in it.
    """
    homes = [model.get_submodule(block.path) for block in find_heads(model).blocks]
    touched = {id(parameter) for home in homes for parameter in home.parameters()}
    apart = {id(p): p for p in model.parameters() if id(p) not in touched}
    twin = copy.deepcopy(model, dict(apart))  # most weights have no part in it: not copied
    before = {}
    for name, parameter in twin.named_parameters():
        if id(parameter) in apart:
            continue
        parameter.requires_grad_(False)
        parameter.grad = None
        before[name] = parameter.numel()
        # Whole numbers up to 2**53 are exact, and weights must be floating point.
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
    """Tell of an optimizer whose state is not a number per weight, before anything is cut."""
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
    """Whether it is a tensor of more than one number, such as a step counter is not."""
    return isinstance(value, Tensor) and value.dim() > 0


def plain_optimizer(optimizer: Any) -> torch.optim.Optimizer:
    """The optimizer inside the one of accelerate."""
    inner: torch.optim.Optimizer = getattr(optimizer, "optimizer", optimizer)
    return inner


def expand(small: nn.Module, whole: nn.Module, mask: HeadMask) -> None:
    """Put the weights of a cut model into one with all heads, whose other heads stay as they are.

    Under the mask the whole model must then say what the small one says.

    Args:
        small: a model with the heads of the mask.
        whole: an unpruned model of the same kind, changed in place.
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


def worth_cutting(here: int, lasting: HeadMask, decided: bool) -> bool:
    """Whether so many of the heads that are here are gone that a pause pays, or all that will."""
    gone = here - len(lasting)
    return gone > 0 and (decided or gone >= WORTH * here)
