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

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Note the last selection, and write them all."""
        self.trainer.note_selection()
        self.trainer.save_history()
