"""What a `PruningTrainer` does between the steps, as a callback of transformers' Trainer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

if TYPE_CHECKING:
    from headcount.training.trainer import PruningTrainer


class BetweenSteps(TrainerCallback):
    """Calls the trainer where `Trainer` has no method to override."""

    def __init__(self, trainer: PruningTrainer) -> None:
        self.trainer = trainer

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Record the first selection."""
        if self.trainer.pruner_step is not None:
            self.trainer.pruner_step.forget()
        if state.global_step == 0:  # a resumed training has its history already
            self.trainer.history.clear()
            self.trainer.note_selection()

    def on_pre_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Clip the pruner's gradients, and set its learning rate."""
        self.trainer.prepare_update()

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Pause the training if heads can be cut."""
        self.trainer.cutter.consider()

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl:
        """Skip the epoch's evaluation and log if a pause to cut heads ended it too early."""
        done = state.epoch or 0.0
        if self.trainer.cutter.is_pausing and abs(done - round(done)) > 1e-6:
            control.should_evaluate = control.should_log = False
        return control

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Record the last selection, and write the history."""
        self.trainer.note_selection()
        self.trainer.save_history()
