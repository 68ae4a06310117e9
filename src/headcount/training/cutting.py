"""Cut heads in the middle of a training, once they cannot be selected again.

The training stops between two steps. The model and its optimizer's state are cut, a checkpoint is
written, and the training resumes from it. `Trainer` resumes exactly, and everything that depends on
the size of the weights (wrappers of several processes, the optimizer) is made again. A run that
dies after the cut resumes from the small checkpoint like from any other.

If FSDP 2 shards the model, every process gathers it for the cut: the model and the optimizer's
state are whole in its memory then, and for an operation the model is whole on its device.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn
from torch.utils.data import DataLoader
from transformers import Trainer, TrainingArguments
from transformers.utils.import_utils import is_datasets_available

from headcount.batch import Batch
from headcount.errors import HeadcountError
from headcount.heads.mask import HeadMask
from headcount.training.cut_weights import cut_with_optimizer, plain_optimizer

if TYPE_CHECKING:
    from headcount.training.trainer import PruningTrainer

WORTH = 1 / 3  # the share of the heads that must be out before the training pauses for a cut


class Cutter:
    """Decides when a trainer pauses to cut heads, cuts them, and lets it continue."""

    def __init__(self, trainer: PruningTrainer) -> None:
        self.trainer, self.pruner = trainer, trainer.pruner
        self._given_optimizer = trainer.optimizer  # the user's own, if there is one
        # Gives the heads that stay after the pause; None while no pause is due.
        self._to_stay: Callable[[], HeadMask] | None = None

    @property
    def is_pausing(self) -> bool:
        """Whether the training stops only to cut heads, and then continues."""
        return self._to_stay is not None

    def consider(self) -> None:
        """Pause after this step if an operation is due, or if enough heads are out for good."""
        state, pruner = self.trainer.state, self.pruner
        done, total = state.global_step, state.max_steps
        if pruner.is_due(done, total):
            self._pause(self.operate)
            return
        lasting = pruner.lasting(done, total)
        if lasting is None or done >= total:
            return
        final = len(pruner.counts) == 1 and lasting == pruner.mask()
        # The pruner knows this. To look through the model would be slow after every step.
        here = len(pruner.bound() if pruner.present is None else pruner.present)
        if worth_cutting(here, lasting, final):
            self._pause(lambda: lasting)

    def _pause(self, staying: Callable[[], HeadMask]) -> None:
        self._to_stay = staying
        self.trainer.control.should_training_stop = True

    def cut_and_save(self) -> Path | None:
        """Cut the heads that the pause is for, and write a checkpoint.

        Returns:
            The checkpoint to resume from; None if the training is over.
        """
        trainer = self.trainer
        assert self._to_stay is not None
        try:
            trainer.cut(self._to_stay())
        finally:
            self._to_stay = None
        if trainer.state.global_step >= trainer.state.max_steps:
            return None
        trainer._save_checkpoint(trainer.plain_model(), trial=None)
        trainer.control = trainer.callback_handler.on_save(
            trainer.args, trainer.state, trainer.control
        )
        trainer.accelerator.wait_for_everyone()
        self.forget_sizes()
        return trainer.folder() / f"checkpoint-{trainer.state.global_step}"

    def forget_sizes(self) -> None:
        """Let the Trainer wrap the model again, and make an optimizer for the smaller weights."""
        trainer = self.trainer
        trainer.model_wrapped = trainer.model = trainer.plain_model()
        if self._given_optimizer is None:
            trainer.optimizer = trainer.lr_scheduler = None

    def cut(self, mask: HeadMask) -> None:
        """Cut all heads except these out of model and optimizer; the gates stay as they are."""
        optimizer = self.trainer.optimizer
        plain = None if optimizer is None else plain_optimizer(optimizer)
        cut_with_optimizer(self.trainer.plain_model(), mask, plain)

    def look(self) -> None:
        """Show the pruner the model as it is now, on a sample of the training data."""
        sample = sampled(self.trainer, self.pruner.looks_at)
        self.pruner.look(self.trainer.plain_model(), sample)
        share(self.pruner)

    def operate(self, last: bool = False) -> HeadMask:
        """Have the pruner choose the heads that stay, and prepare the model for the cut.

        With `last` the training is over, even if it ended earlier than planned.
        """
        trainer, pruner = self.trainer, self.pruner
        trainer.take_gates_off()
        trainer.gather_shards()
        model = trainer.plain_model()
        if trainer.is_fsdp_enabled:
            trainer._move_model_to_device(model, trainer.args.device)
        trainer.teacher.copy_before_operation(model)
        batches = sampled(trainer, pruner.operating_sample)
        total = trainer.state.max_steps or 1  # unknown before the first step
        step = total if last else trainer.state.global_step
        mask = pruner.operate(model, batches, step, total, agreed)
        share(model)
        if pruner.begins_anew and trainer.optimizer is not None:
            plain_optimizer(trainer.optimizer).state.clear()  # from gradients with all heads
        return mask


def worth_cutting(here: int, lasting: HeadMask, decided: bool) -> bool:
    """Whether a pause pays: enough of the present heads are out, or all that ever will be."""
    gone = here - len(lasting)
    return gone > 0 and (decided or gone >= WORTH * here)


def refuse_uncuttable(args: TrainingArguments, unknown_shards: bool) -> None:
    """Refuse settings with which a training cannot pause and continue with a smaller model.

    Args:
        args: the settings.
        unknown_shards: whether the model is sharded by anything except FSDP 2.
    """
    if unknown_shards:
        raise HeadcountError(
            "heads cannot be cut while training with FSDP 1 or DeepSpeed, which shard the model; "
            "use FSDP 2 (fsdp_config={'version': 2}), or a pruner that cuts at the end, such as "
            "JointDSP"
        )
    for is_so, what in (
        (args.load_best_model_at_end, "load_best_model_at_end, which takes an earlier checkpoint"),
        (args.save_only_model, "save_only_model, which leaves the optimizer out of checkpoints"),
        (args.ignore_data_skip, "ignore_data_skip, which begins the epoch again"),
    ):
        if is_so:
            raise HeadcountError(
                f"heads cannot be cut while training with {what}; do without it, or take a pruner "
                "that cuts at the end: JointDSP, or any with commit_at=None and shed=False but "
                "Handover"
            )


def agreed(mask: HeadMask) -> HeadMask:
    """The first process's mask, for all: rounding may differ between devices, masks must not."""
    from accelerate.utils import broadcast_object_list  # needed by a Trainer, not by this import

    return broadcast_object_list([mask])[0]  # type: ignore[no-any-return]


def share(module: nn.Module) -> None:
    """Give every process the parameters of the first one, for the same reason."""
    from accelerate.utils import broadcast

    for parameter in module.parameters():
        parameter.data.copy_(broadcast(parameter.data))


def sampled(trainer: Trainer, number: int) -> list[Batch]:
    """Batches of this many training examples, or of all if there are fewer.

    The seed alone draws them: every process gets the same ones, at any step of the training. They
    are sorted by length, the longest first, so that there is little padding.
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
    """The length of a text in tokens or of speech in samples; 0 for other examples."""
    if not isinstance(example, Mapping):
        return 0
    return max(
        (len(example[name]) for name in ("input_ids", "input_values") if name in example), default=0
    )
