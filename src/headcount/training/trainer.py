"""The Trainer of `transformers` with a pruner inside.

It runs the training; here is only what a pruner needs: gates for the trainer's life, a parameter
group with its own learning rate and clipping, and its state in every checkpoint.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, Seq2SeqTrainer
from transformers.trainer_utils import TrainOutput

from headcount.errors import HeadcountError
from headcount.heads.find import find_heads
from headcount.heads.mask import HeadMask
from headcount.pruners.base import Pruner, frozen
from headcount.surgery import remove_heads
from headcount.training.averaging import AveragingTrainer
from headcount.training.callback import PrunerCallback
from headcount.training.clipping import clipping_with_model
from headcount.training.history import SelectionHistory
from headcount.training.logs import TellingTrainer
from headcount.training.operate import OperatingTrainer
from headcount.training.saved import HISTORY, load_pruner, save_pruner, saved_heads
from headcount.training.sharded import ShardedTrainer, gathered, preparing, skeleton
from headcount.training.shrink import refuse_uncuttable, worth_cutting
from headcount.training.step import PrunerStep


class PruningTrainer(TellingTrainer, OperatingTrainer, ShardedTrainer, AveragingTrainer):
    """A `Trainer` that chooses K heads of the model while it trains it.

        trainer = PruningTrainer(model=model, pruner=JointDSP(keep=12), args=..., ...)
        trainer.train()
        small = trainer.pruned_model()

    Training uses the pruner's gates; evaluation, prediction and generation use its mask, also in
    the middle of the training (all heads, as long as `Handover` has not operated). A training that
    stopped goes on with `train(resume_from_checkpoint=True)`, exactly as if it had not stopped.
    `selection_history.json` in the output folder tells which heads were selected at every log, and
    at which temperature.

    Training logs gain `heads_selected`, `heads_changed` (since the last log), and where the pruner
    has them `temperature`, `heads_expected` and `penalty_weight`. The logged loss is the model's,
    mixed with the teacher's if there is one, without the pruner's penalty, so that runs compare.

    Args:
        *args: see `Trainer`.
        pruner: how to choose; it is attached to the model, and the gates stay in place, until
            `pruned_model` is called. `PipelinedDSP` also freezes the model as long.
        **kwargs: see `Trainer`; and `teacher`, the fine-tuned model with all its heads, to learn
            from it as a `distillation` says. With `Handover` and a `distillation` alone, it is the
            model itself as it was before its first operation. An optimizer of your own gets the
            pruner's group added; with a scheduler of your own, put `pruner.parameter_groups()` into
            the optimizer first.
    """

    def __init__(self, *args: Any, pruner: Pruner, **kwargs: Any) -> None:
        if kwargs.get("model_init") is not None:
            raise HeadcountError(
                "a pruner is bound to one model, but model_init makes new ones; give model instead"
            )
        super().__init__(*args, **kwargs)
        self.pruner = pruner
        self.teaches_itself = (
            pruner.teaches_itself and kwargs.get("distillation") is not None and not self.teacher
        )
        self.history = SelectionHistory()
        self._gates = ExitStack()
        self._removed = False
        self._skeleton = skeleton(self._plain()) if self.is_fsdp_enabled else None
        if pruner.cuts_while_training:
            refuse_uncuttable(self.args, self.is_fsdp_enabled or self.is_deepspeed_enabled)
        self.pruner_step: PrunerStep | None = None
        pruner.refuse(self._plain())
        self._attach()
        pruner.to(home_of(self.args.device))
        if self.is_fsdp_enabled:
            self.accelerator.prepare = preparing(self.accelerator.prepare, pruner)
        elif not any(p.requires_grad for p in self._plain().parameters()):
            # DistributedDataParallel refuses a frozen model, which needs no averaging.
            prepare = partial(self.accelerator.prepare_model, evaluation_mode=True)
            self.accelerator.prepare_model = prepare
        if self._setting("clip", 1.0) == "with-model":
            clip = self.accelerator.clip_grad_norm_
            self.accelerator.clip_grad_norm_ = clipping_with_model(clip, pruner)
        self.add_callback(PrunerCallback(self))

    def _attach(self) -> None:
        """Put the gates in place; a choice that is final needs none."""
        model, pruner = self._plain(), self.pruner
        if pruner.committed is None:
            self.pruner_step = PrunerStep(self._gates.enter_context(pruner.attached(model)))
            checkpointing: Any = self.args.gradient_checkpointing_kwargs or {}
            if checkpointing.get("use_reentrant"):
                # It goes backward into blocks whose input asks for it only, not for gates' sake.
                model.enable_input_require_grads()
                self._gates.callback(model.disable_input_require_grads)
        else:
            self.pruner_step = None
            pruner.zero_grad()  # the optimizer would go on with the last one
            self._gates.enter_context(frozen(model, pruner.freeze))

    def train(self, resume_from_checkpoint: Any = None, *args: Any, **kwargs: Any) -> TrainOutput:
        """Train as `Trainer` does; heads that are out from the start are cut before."""
        if self._removed:
            raise HeadcountError(
                "the heads were removed from this trainer's model; make a new Trainer to train on"
            )
        begins = not resume_from_checkpoint  # else what was cut is in the checkpoint
        if begins and (self.is_operation_due(0, 1) or self.pruner.looks_at):
            self._move_model_to_device(self._plain(), self.args.device)  # else done after this
        if begins and self.pruner.looks_at:
            self._gates.close()
            self.look()
            self._attach()
        lasting = self.pruner.lasting(0, 1) if begins else None
        if begins and self.is_operation_due(0, 1):
            self.cut(self.operate())
        elif lasting is not None and len(lasting) < len(find_heads(self._plain())):
            self.cut(lasting)
        return super().train(resume_from_checkpoint, *args, **kwargs)

    def cut(self, mask: HeadMask) -> None:
        """Cut heads out of the model in training, and take the gates of the rest up again."""
        self._gates.close()
        super().cut(mask)
        self.pruner.commit(mask)
        self._attach()

    def consider_cutting(self) -> None:
        """Pause after this step if enough heads are known to be out."""
        done, total = self.state.global_step, self.state.max_steps
        if self.is_operation_due(done, total):
            self.cut_after_step(self.operate)
            return
        lasting = self.pruner.lasting(done, total)
        if lasting is None or done >= total:
            return
        final = len(self.pruner.counts) == 1 and lasting == self.pruner.mask()
        # Known, not looked for: this is asked after every step.
        here = len(self.pruner.bound() if self.pruner.present is None else self.pruner.present)
        if worth_cutting(here, lasting, final):
            self.cut_after_step(lambda: lasting)

    def operate(self, last: bool = False) -> HeadMask:
        """Take the gates off, and have the pruner operate."""
        self._gates.close()
        return super().operate(last)

    def _plain(self) -> PreTrainedModel:
        return self.accelerator.unwrap_model(self.model)  # type: ignore[no-any-return]

    def detach(self) -> PreTrainedModel:
        """Take the gates off, and return the model as it was trained, uncut or as it was cut there.

        Of a model that FSDP shards it is a whole copy, gathered on every process at once.
        """
        self._gates.close()
        if self.is_operation_due(1, 1):
            self.cut(self.operate(last=True))  # the training ended before it came to that
            self._gates.close()
        if self._skeleton is not None:
            self.model = self.model_wrapped = gathered(self._skeleton, self.model_wrapped)
            # From here on the Trainer has a whole model to evaluate and to save.
            self.is_fsdp_enabled, self._skeleton = False, None
            self._move_model_to_device(self._plain(), self.args.device)
        return self._plain()

    def pruned_model(self, keep: int | float | None = None) -> PreTrainedModel:
        """Take the gates off, cut the closed heads out of the model in place, and return it.

        The trainer can still evaluate, predict and save, with the small model; to train that on,
        make a new one.

        Args:
            keep: which K, of a pruner that was given several; None for the smallest. Called again
                with a smaller one, it cuts the same model further.
        """
        model = self.detach()
        if keep is not None or not self._removed:
            remove_heads(model, self.mask(keep))
            self._removed = True
        return model

    def create_optimizer(self, *args: Any, **kwargs: Any) -> torch.optim.Optimizer:
        """The optimizer of `Trainer`, with the pruner's own groups."""
        optimizer: torch.optim.Optimizer = super().create_optimizer(*args, **kwargs)
        missing = [g for g in self.pruner.parameter_groups() if not _held(optimizer, g)]
        if missing and self.lr_scheduler is not None:
            raise HeadcountError(
                "the scheduler was made for an optimizer without the pruner's parameters; call "
                "pruner.bind(find_heads(model)), put pruner.parameter_groups() into the optimizer "
                "and make the scheduler after that"
            )
        if missing:
            # A frozen model leaves empty groups, whose learning rate would be the logged one.
            optimizer.param_groups[:] = [g for g in optimizer.param_groups if g["params"]]
        for group in missing:
            optimizer.add_param_group(group)
        return optimizer

    def training_step(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        num_items_in_batch: Tensor | int | None = None,
        **kwargs: Any,
    ) -> Tensor:
        """A micro-batch of a training step; the last one gives the pruner its gradients."""
        step = self.pruner_step
        if step is None:
            self.pruner.begin_step(self.state.global_step, self.state.max_steps)  # for the logs
        else:
            step.begin(self.state.global_step, self.state.max_steps)
        loss: Tensor = super().training_step(model, inputs, num_items_in_batch, **kwargs)
        if step is not None and self.accelerator.sync_gradients:
            # Before the unscaling of mixed precision, so that it sees an overflow here too.
            scaler = self.accelerator.scaler
            step.finish(1.0 if scaler is None else scaler.get_scale())
        return loss

    def prepare_update(self) -> None:
        """Right before the optimizer's step: clip the pruner's gradients, and set its rate."""
        clip = self._setting("clip", 1.0)
        if clip not in (None, "with-model"):
            nn.utils.clip_grad_norm_(list(self.pruner.parameters()), clip)
        if not self._setting("decay", True):
            for group in self.pruner.parameter_groups():
                for own in self._optimizer().param_groups:
                    if any(p is group["params"][0] for p in own["params"]):
                        own["lr"] = group["lr"]

    def _setting(self, name: str, default: Any) -> Any:
        return getattr(getattr(self.pruner, "settings", None), name, default)

    def _save_checkpoint(self, model: nn.Module, trial: Any, *args: Any, **kwargs: Any) -> None:
        # Before the rest: the Trainer writes its state last, and what has that is complete.
        folder = f"checkpoint-{self.state.global_step}"
        if self.args.should_save:
            here = HeadMask.all(find_heads(self._plain()))
            place = Path(self._get_output_dir(trial=trial)) / folder
            save_pruner(self.pruner, self.history, here, place)
        self.save_history()
        super()._save_checkpoint(model, trial, *args, **kwargs)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, *args: Any, **kwargs: Any) -> None:
        load_pruner(self.pruner, Path(resume_from_checkpoint))
        here = saved_heads(Path(resume_from_checkpoint))
        fewer = here is not None and len(here) < len(find_heads(self._plain()))
        if here is not None and (fewer or self.has_operated):
            self._gates.close()
            self.remember_teacher()
            self.cut(here)
        super()._load_from_checkpoint(resume_from_checkpoint, *args, **kwargs)
        self.history = SelectionHistory.load(Path(resume_from_checkpoint) / HISTORY)

    def _load_best_model(self) -> None:
        # The history is that of the training, which ended elsewhere than at its best.
        self.note_selection()
        super()._load_best_model()
        load_pruner(self.pruner, Path(str(self.state.best_model_checkpoint)))


class Seq2SeqPruningTrainer(PruningTrainer, Seq2SeqTrainer):
    """A `Seq2SeqTrainer` that prunes: `predict_with_generate` generates with the mask."""


def home_of(device: torch.device) -> torch.device:
    """Where a pruner computes: beside the model, but for devices that have no float64."""
    return torch.device("cpu") if device.type == "mps" else device


def _held(optimizer: torch.optim.Optimizer, group: dict[str, Any]) -> bool:
    held = {id(p) for own in optimizer.param_groups for p in own["params"]}
    return all(id(p) in held for p in group["params"])
