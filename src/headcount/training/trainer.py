"""The Trainer of `transformers` with a pruner inside.

`Trainer` runs the training. This file adds what a pruner needs: gates on the model, a parameter
group with its own learning rate and clipping, and its state in every checkpoint. The rest is in
parts that the trainer owns: a `Cutter`, a `Teacher` and a `SelectionHistory`.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler
from transformers import PreTrainedModel, Seq2SeqTrainer
from transformers.trainer_utils import TrainOutput, get_last_checkpoint

from headcount import seams
from headcount.errors import HeadcountError
from headcount.heads.find import find_heads
from headcount.heads.mask import HeadMask
from headcount.pruners.base import Pruner, frozen
from headcount.surgery.remove import remove_heads
from headcount.training import sharded
from headcount.training.between_steps import BetweenSteps
from headcount.training.checkpoint_files import HISTORY, load_pruner, save_pruner, saved_heads
from headcount.training.cutting import Cutter, refuse_uncuttable, share
from headcount.training.history import SelectionHistory
from headcount.training.rate_schedule import begin_anew
from headcount.training.step import AveragingTrainer, PrunerStep, clipping_with_model
from headcount.training.teacher import Distillation, Teacher


class PruningTrainer(AveragingTrainer):
    """A `Trainer` that chooses K heads of the model while it trains.

        trainer = PruningTrainer(model=model, pruner=JointDSP(keep=12), args=..., ...)
        trainer.train()
        small = trainer.pruned_model()

    Training uses the pruner's gates. Evaluation, prediction and generation use its mask, also in
    the middle of the training; before `Handover` has operated, that is all heads. To resume a
    training that stopped, call `train(resume_from_checkpoint=True)`; the result is exactly the
    same. `selection_history.json` in the output folder has the selected heads and the temperature
    at every log.

    Training logs also have `heads_selected`, `heads_changed` (since the last log) and, if the
    pruner has them, `temperature`, `heads_expected` and `penalty_weight`. The logged loss includes
    the teacher's, but not the pruner's penalty, so that runs can be compared.

    Args:
        *args: see `Trainer`.
        pruner: how to choose the heads. Its gates stay on the model until `pruned_model` is called.
            `PipelinedDSP` also freezes the model until then.
        teacher: the fine-tuned model with all its heads, to learn from besides the labels. It is
            frozen. None learns from the labels alone, with one exception: `Handover` with a
            `distillation` learns from the model as it was before its first operation.
        distillation: how to learn from the teacher; None for the defaults.
        **kwargs: see `Trainer`. The pruner's group is added to an optimizer of your own. If you
            also give a scheduler, put `pruner.parameter_groups()` into the optimizer first.

    Attributes:
        history: the selected heads at every log.
        cutter: cuts heads while training.
        teacher: mixes the distance to the teacher's outputs into the loss; its `model` is the
            teacher itself.
    """

    def __init__(
        self,
        *args: Any,
        pruner: Pruner,
        teacher: PreTrainedModel | None = None,
        distillation: Distillation | None = None,
        **kwargs: Any,
    ) -> None:
        seams.require(*seams.TRAINER)
        if kwargs.get("model_init") is not None:
            raise HeadcountError(
                "a pruner is bound to one model, but model_init makes new ones; give model instead"
            )
        super().__init__(*args, **kwargs)
        self.pruner = pruner
        self.history = SelectionHistory()
        itself = pruner.teaches_itself and distillation is not None and teacher is None
        self.teacher = Teacher(self, distillation, itself)
        if teacher is not None:
            self.teacher.learn_from(teacher)
        self.cutter = Cutter(self)
        self.pruner_step: PrunerStep | None = None
        self._gates = ExitStack()
        self._removed = False
        self._skeleton = sharded.skeleton(self.plain_model()) if self.is_fsdp_enabled else None
        if pruner.cuts_while_training:
            is_fsdp_1 = self.is_fsdp_enabled and not self.accelerator.is_fsdp2
            refuse_uncuttable(self.args, is_fsdp_1 or self.is_deepspeed_enabled)
        pruner.refuse(self.plain_model())
        self._attach()
        pruner.to(home_of(self.args.device))
        self._prepare_accelerator()
        self.add_callback(BetweenSteps(self))

    def _prepare_accelerator(self) -> None:
        """Adapt accelerate to parameters that are not the model's: sharding, DDP, clipping."""
        accelerator, pruner = self.accelerator, self.pruner
        if self.is_fsdp_enabled:
            accelerator.prepare = sharded.preparing(accelerator.prepare, pruner)
        elif not any(p.requires_grad for p in self.plain_model().parameters()):
            # DistributedDataParallel refuses a frozen model, which needs no averaging.
            prepare = partial(accelerator.prepare_model, evaluation_mode=True)
            accelerator.prepare_model = prepare
        if pruner.clip == "with-model":
            clip = accelerator.clip_grad_norm_
            accelerator.clip_grad_norm_ = clipping_with_model(clip, pruner)

    def plain_model(self) -> PreTrainedModel:
        """The model without the wrappers for several processes."""
        return self.accelerator.unwrap_model(self.model)  # type: ignore[no-any-return]

    def folder(self) -> Path:
        """The folder of the checkpoints."""
        return Path(self._get_output_dir(trial=None))

    # ── gates ──

    def _attach(self) -> None:
        """Put the gates on the model; a final choice needs none."""
        model, pruner = self.plain_model(), self.pruner
        if pruner.committed is None:
            self.pruner_step = PrunerStep(self._gates.enter_context(pruner.attached(model)))
            checkpointing: Any = self.args.gradient_checkpointing_kwargs or {}
            if checkpointing.get("use_reentrant"):
                # Reentrant checkpointing goes backward into a block only if its input requires
                # gradients; gates that do are not enough.
                model.enable_input_require_grads()
                self._gates.callback(model.disable_input_require_grads)
        else:
            self.pruner_step = None
            pruner.zero_grad()  # or the optimizer would apply the last gradient in every step
            self._gates.enter_context(frozen(model, pruner.settings.freeze))

    def take_gates_off(self) -> None:
        """Leave the model without gates until `cut` puts them back."""
        self._gates.close()

    def gather_shards(self) -> None:
        """Hold the whole model and the optimizer's whole state, in memory, in place of shards.

        The model must be without gates. If it is sharded, by FSDP 2, all processes have to call
        this method together.
        """
        if self._skeleton is None or not sharded.is_sharded(self.plain_model()):
            return
        whole = sharded.gathered(self._skeleton, self.model_wrapped)
        if self.optimizer is not None:
            sharded.gather_optimizer(self.optimizer, self.model_wrapped, whole)
        self.model = self.model_wrapped = whole

    def mask(self, keep: int | float | None = None) -> HeadMask:
        """The heads that are selected now, for one of several K; None for the smallest K."""
        return self.pruner.mask(keep)

    # ── training, with pauses to cut heads ──

    def train(self, resume_from_checkpoint: Any = None, *args: Any, **kwargs: Any) -> TrainOutput:
        """Train as `Trainer` does, and pause to cut heads."""
        if self._removed:
            raise HeadcountError(
                "the heads were removed from this trainer's model; make a new Trainer to train on"
            )
        if not resume_from_checkpoint:  # else the checkpoint says what was cut
            self._begin()
        elif self.is_fsdp_enabled:
            self._cut_before_sharding(resume_from_checkpoint)
        output: TrainOutput = super().train(resume_from_checkpoint, *args, **kwargs)
        while self.cutter.is_pausing and (checkpoint := self.cutter.cut_and_save()) is not None:
            output = super().train(str(checkpoint), *args, **kwargs)
        return output

    def _begin(self) -> None:
        """Do what comes before the first step: look, operate, cut heads that are out already."""
        pruner = self.pruner
        operates = pruner.is_due(0, 1)
        if operates or pruner.looks_at:
            # Otherwise `Trainer` does this later.
            self._move_model_to_device(self.plain_model(), self.args.device)
            if self.is_fsdp_enabled:
                share(self.plain_model())  # perhaps the first process alone has loaded the weights
        if pruner.looks_at:
            self._gates.close()
            self.cutter.look()
            self._attach()
        lasting = pruner.lasting(0, 1)
        if operates:
            self.cut(self.cutter.operate())
        elif lasting is not None and len(lasting) < len(find_heads(self.plain_model())):
            self.cut(lasting)

    def _cut_before_sharding(self, checkpoint: str | bool) -> None:
        """Cut the heads that a checkpoint has not: `Trainer` shards the model, then loads it."""
        last = get_last_checkpoint(str(self.args.output_dir)) if checkpoint is True else checkpoint
        if last:  # else `Trainer` says that there is none
            load_pruner(self.pruner, Path(last))
            if self._cut_as_in(Path(last)):
                self.cutter.forget_sizes()

    def _cut_as_in(self, checkpoint: Path) -> bool:
        """Cut the heads that a checkpoint has not; returns whether it was made after a cut."""
        here = saved_heads(checkpoint)
        fewer = here is not None and len(here) < len(find_heads(self.plain_model()))
        if here is None or not (fewer or self.pruner.has_operated):
            return False
        self._gates.close()
        self.gather_shards()
        self.teacher.restore()
        self.cut(here)
        return True

    def cut(self, mask: HeadMask) -> None:
        """Cut all heads except these out of the model in training, and gate those again.

        If FSDP 2 shards the model, it is a whole copy afterwards, until `Trainer` shards it again.
        """
        self._gates.close()
        self.gather_shards()
        self.cutter.cut(mask)
        if self._skeleton is not None:
            self._skeleton = sharded.skeleton(self.plain_model())
        self.pruner.commit(mask)
        self._attach()

    def _maybe_log_save_evaluate(self, *args: Any, **kwargs: Any) -> None:
        if self.cutter.is_pausing:
            # The checkpoint after the cut has the same name. It must be there completely or not at
            # all, so no other one is written here.
            self.control.should_save = False
        super()._maybe_log_save_evaluate(*args, **kwargs)

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
            # Before mixed precision unscales the gradients, so that it sees an overflow in these.
            scaler = self.accelerator.scaler
            step.finish(1.0 if scaler is None else scaler.get_scale())
        return loss

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        """The loss of `Trainer`, mixed with the distance to the teacher while the model trains."""
        own: Any = super().compute_loss
        if self.teacher.model is None or not model.training:
            return own(model, inputs, return_outputs, num_items_in_batch)
        loss, outputs = self.teacher.mixed_loss(
            inputs, num_items_in_batch, lambda asked: own(model, asked, True, num_items_in_batch)
        )
        return (loss, outputs) if return_outputs else loss

    # ── optimizer ──

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
            # A frozen model leaves empty groups, and their learning rate would be logged.
            optimizer.param_groups[:] = [g for g in optimizer.param_groups if g["params"]]
        for group in missing:
            optimizer.add_param_group(group)
        return optimizer

    def create_scheduler(self, num_training_steps: int, *args: Any, **kwargs: Any) -> LRScheduler:
        """The scheduler of `Trainer`; unless it is your own, it starts again in each part."""
        given = self.lr_scheduler is not None
        scheduler: LRScheduler = super().create_scheduler(num_training_steps, *args, **kwargs)
        bounds = self.pruner.parts(num_training_steps)
        if len(bounds) > 2 and not given:
            begin_anew(scheduler, self.args, bounds, self.pruner.late_rate)
        return scheduler

    def prepare_update(self) -> None:
        """Right before the optimizer's step, clip the pruner's gradients and set its rate."""
        clip = self.pruner.clip
        if clip is not None and clip != "with-model":
            nn.utils.clip_grad_norm_(list(self.pruner.parameters()), clip)
        if not self.pruner.decays:
            for group in self.pruner.parameter_groups():
                for own in self._optimizer().param_groups:
                    if any(p is group["params"][0] for p in own["params"]):
                        own["lr"] = group["lr"]

    def _optimizer(self) -> torch.optim.Optimizer:
        assert self.optimizer is not None
        return self.optimizer

    # ── logs and checkpoints ──

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """Log as `Trainer` does; training logs also have numbers about the heads."""
        if "loss" in logs:
            changed = self.note_selection()
            logs |= {"heads_selected": len(self.mask()), "heads_changed": changed}
            if (temperature := self.pruner.temperature) is not None:
                logs["temperature"] = float(temperature)
            logs.update(self.pruner.readings())
        super().log(logs, *args, **kwargs)

    def note_selection(self) -> int:
        """Record the selection of this step in the history; see `SelectionHistory.record`."""
        temperature = self.pruner.temperature
        return self.history.record(
            self.state.global_step, self.mask(), None if temperature is None else float(temperature)
        )

    def save_history(self) -> None:
        """Write `selection_history.json` into the output folder."""
        if self.args.should_save and self.args.output_dir is not None:
            self.history.save(Path(self.args.output_dir) / HISTORY)

    def _save_checkpoint(self, model: nn.Module, trial: Any, *args: Any, **kwargs: Any) -> None:
        # Before the rest: the Trainer writes its state last, so a checkpoint with it is complete.
        if self.args.should_save:
            here = HeadMask.all(find_heads(self.plain_model()))
            place = Path(self._get_output_dir(trial=trial))
            folder = place / f"checkpoint-{self.state.global_step}"
            save_pruner(self.pruner, self.history, here, folder)
        self.save_history()
        super()._save_checkpoint(model, trial, *args, **kwargs)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, *args: Any, **kwargs: Any) -> None:
        load_pruner(self.pruner, Path(resume_from_checkpoint))
        if not self.is_fsdp_enabled:  # or it was cut before it was sharded
            self._cut_as_in(Path(resume_from_checkpoint))
        super()._load_from_checkpoint(resume_from_checkpoint, *args, **kwargs)
        self.history = SelectionHistory.load(Path(resume_from_checkpoint) / HISTORY)

    def _load_best_model(self) -> None:
        # The history is that of the whole training, not only up to its best step.
        self.note_selection()
        super()._load_best_model()
        load_pruner(self.pruner, Path(str(self.state.best_model_checkpoint)))

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        save = super()._save_optimizer_and_scheduler
        if not self.is_fsdp_enabled:
            save(output_dir)
            return
        sharded.save_optimizer(
            self._optimizer(), self.pruner, Path(output_dir), partial(save, output_dir),
            self.args.should_save,
        )  # fmt: skip

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        load = super()._load_optimizer_and_scheduler
        if checkpoint is None or not self.is_fsdp_enabled:
            load(checkpoint)
            return
        sharded.load_optimizer(
            self._optimizer(), self.pruner, Path(checkpoint), partial(load, checkpoint),
            self.lr_scheduler,
        )  # fmt: skip

    # ── afterwards ──

    def detach(self) -> PreTrainedModel:
        """Take the gates off, and return the model as it was trained.

        It has all heads that were not cut while training. If FSDP shards the model, this is a whole
        copy; all processes have to call this method together.
        """
        self._gates.close()
        if self.pruner.is_due(1, 1):
            self.cut(self.cutter.operate(last=True))  # the training ended before the operation
            self._gates.close()
        if self._skeleton is not None:
            if sharded.is_sharded(self.model_wrapped):
                whole = sharded.gathered(self._skeleton, self.model_wrapped)
                self.model = self.model_wrapped = whole
            # From now on the Trainer evaluates and saves a whole model.
            self.is_fsdp_enabled, self._skeleton = False, None
            self._move_model_to_device(self.plain_model(), self.args.device)
        return self.plain_model()

    def pruned_model(self, keep: int | float | None = None) -> PreTrainedModel:
        """Take the gates off, cut the closed heads out of the model in place, and return it.

        The trainer can still evaluate, predict and save the small model. To train it further, make
        a new trainer.

        Args:
            keep: one of the K of a pruner that was given several; None for the smallest. Call it
                again with a smaller K to cut the same model further.
        """
        model = self.detach()
        if keep is not None or not self._removed:
            remove_heads(model, self.mask(keep))
            self._removed = True
        return model


class Seq2SeqPruningTrainer(PruningTrainer, Seq2SeqTrainer):
    """A `Seq2SeqTrainer` that prunes: `predict_with_generate` generates with the mask."""


def home_of(device: torch.device) -> torch.device:
    """Where a pruner computes: on the model's device, or on the CPU if that has no float64."""
    return torch.device("cpu") if device.type == "mps" else device


def _held(optimizer: torch.optim.Optimizer, group: dict[str, Any]) -> bool:
    held = {id(p) for own in optimizer.param_groups for p in own["params"]}
    return all(id(p) in held for p in group["params"])
