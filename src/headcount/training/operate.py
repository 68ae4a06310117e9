"""An operation in the middle of a training: a sample of the data, perhaps a teacher, the heads."""

from __future__ import annotations

import copy
import random
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from torch import nn
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader
from transformers import Trainer
from transformers.utils.import_utils import is_datasets_available

from headcount.errors import HeadcountError
from headcount.heads.mask import HeadMask
from headcount.pruners.base import Pruner
from headcount.pruners.handover import Handover
from headcount.pruners.michel import Batch
from headcount.training.course import begin_anew
from headcount.training.distil import DistillingTrainer
from headcount.training.saved import load_teacher, save_teacher
from headcount.training.shrink import ShrinkingTrainer, plain_optimizer


class OperatingTrainer(ShrinkingTrainer, DistillingTrainer):
    """A `Trainer` that lets a pruner operate on its model, if it is one that does.

    Attributes:
        pruner: the pruner.
        teaches_itself: whether the model before its first operation teaches what is left of it.
    """

    pruner: Pruner
    teaches_itself = False

    def is_operation_due(self, step: int, total_steps: int) -> bool:
        """Whether the time of an operation has come that was not done."""
        return isinstance(self.pruner, Handover) and self.pruner.is_due(step, total_steps)

    @property
    def has_operated(self) -> bool:
        """Whether an operation was done, in this training or in what it goes on from."""
        return isinstance(self.pruner, Handover) and int(self.pruner.done) > 0

    def look(self) -> None:
        """Show the pruner the model as it is, on a sample of the data."""
        model = self.accelerator.unwrap_model(self.model)
        self.pruner.look(model, sampled(self, self.pruner.looks_at))
        share(self.pruner)

    def operate(self, last: bool = False) -> HeadMask:
        """Have the pruner choose the heads that stay.

        Args:
            last: no step follows, whatever was planned.
        """
        pruner, model = self.pruner, self.accelerator.unwrap_model(self.model)
        assert isinstance(pruner, Handover), "no operation is ever due with another"
        if self.teaches_itself and self.teacher is None:
            self.learn_from(copy.deepcopy(model))
            if self.args.should_save:
                save_teacher(model, self._folder())
        batches = sampled(self, pruner.sample)
        total = self.state.max_steps or 1  # unknown before the first step
        step = total if last else self.state.global_step
        mask = pruner.operate(model, batches, step, total, agreed)
        share(model)
        if pruner.begins_anew and self.optimizer is not None:
            plain_optimizer(self.optimizer).state.clear()  # it is of gradients with all heads
        return mask

    def create_scheduler(self, num_training_steps: int, *args: Any, **kwargs: Any) -> LRScheduler:
        """The scheduler of `Trainer`; one of its making begins anew after the last operation."""
        given = self.lr_scheduler is not None
        scheduler: LRScheduler = super().create_scheduler(num_training_steps, *args, **kwargs)
        if isinstance(self.pruner, Handover) and not given:
            bounds = self.pruner.parts(num_training_steps)
            if len(bounds) > 2:
                begin_anew(scheduler, self.args, bounds, self.pruner.rate)
        return scheduler

    def remember_teacher(self) -> None:
        """Have the teacher again that an operation before this training was resumed left."""
        if self.teaches_itself and self.teacher is None:
            teacher = copy.deepcopy(self.accelerator.unwrap_model(self.model))
            load_teacher(teacher, self._folder())
            self.learn_from(teacher)

    def _folder(self) -> Path:
        return Path(self._get_output_dir(trial=None))


def agreed(mask: HeadMask) -> HeadMask:
    """The first process's: rounding may differ between devices, the heads that stay must not."""
    from accelerate.utils import broadcast_object_list  # a Trainer needs it, to import does not

    return broadcast_object_list([mask])[0]  # type: ignore[no-any-return]


def share(module: nn.Module) -> None:
    """Give every process the first one's parameters, for the same reason."""
    from accelerate.utils import broadcast

    for parameter in module.parameters():
        parameter.data.copy_(broadcast(parameter.data))


def sampled(trainer: Trainer, number: int) -> list[Batch]:
    """Batches of so many training examples, or of all if they are fewer; the seed draws them.

    Every process gets the same ones, wherever in the training it is. Those of about the same length
    are together, the longest first, so that little is padding.
    """
    data: Any = trainer.train_dataset
    if not hasattr(data, "__len__"):
        raise HeadcountError(
            f"a sample of the training data is needed, but this {type(data).__name__} has no known "
            "length; give a data set that has one"
        )
    drawn = random.Random(trainer.args.seed).sample(range(len(data)), min(number, len(data)))
    collate: Any = trainer.data_collator
    if is_datasets_available() and isinstance(data, import_module("datasets").Dataset):
        data = trainer._remove_unused_columns(data, "sample")
    else:
        collate = trainer._get_collator_with_removed_columns(collate, "sample")
    examples: Any = sorted((data[row] for row in sorted(drawn)), key=_length, reverse=True)
    loader = DataLoader(examples, trainer.args.eval_batch_size, collate_fn=collate)
    return [dict(trainer._prepare_inputs(batch)) for batch in loader]


def _length(example: Any) -> int:
    """Of a text in tokens, of speech in samples; 0 for what is not known to differ in length."""
    if not isinstance(example, Mapping):
        return 0
    return max(
        (len(example[name]) for name in ("input_ids", "input_values") if name in example), default=0
    )
