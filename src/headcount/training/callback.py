"""What a trainer with a pruner does between the steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

if TYPE_CHECKING:
    from headcount.training.trainer import PruningTrainer


class PrunerCallback(TrainerCallback):
    """Calls the trainer where it has no method of its own to override."""

    def __init__(self, trainer: PruningTrainer) -> None:
        self.trainer = trainer

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Note the first selection."""
        if self.trainer.pruner_step is not None:
            self.trainer.pruner_step.forget()
        self.trainer.begin_history()

    def on_pre_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Clip the pruner's gradients, and set its rate."""
        self.trainer.prepare_update()

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """See whether heads can be cut."""
        self.trainer.consider_cutting()

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl:
        """Do nothing of what an epoch ends with where a pause to cut heads is in its middle."""
        done = state.epoch or 0.0
        if self.trainer.is_pausing and abs(done - round(done)) > 1e-6:
            control.should_evaluate = control.should_log = False
        return control

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Note the last selection, and write them all."""
        self.trainer.note_selection()
        self.trainer.save_history()
