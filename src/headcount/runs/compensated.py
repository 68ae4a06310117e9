"""Give back what a cut takes, before it is made: on a sample of the training data."""

from __future__ import annotations

import copy

from transformers import PreTrainedModel

from headcount.heads.mask import HeadMask
from headcount.pruners.base import frozen
from headcount.runs.choose import sampled_batches
from headcount.runs.settings import RunSettings
from headcount.surgery.compensate import RIDGE, compensate
from headcount.tasks.base import Processor, Task


def compensated(
    model: PreTrainedModel,
    mask: HeadMask,
    sample: int,
    settings: RunSettings,
    task: Task,
    processor: Processor,
) -> PreTrainedModel:
    """A copy of the model that misses the closed heads less; it serves this mask alone.

    Args:
        model: the fine-tuned model, whole; it is not changed.
        mask: the heads to keep.
        sample: number of training examples.
        settings: of the run; its seed draws the examples, and its method may have a `ridge`, and
            `freeze` patterns of names of what is not to change.
        task: gives the data.
        processor: of the model.
    """
    changed = copy.deepcopy(model)
    data = task.train_data(processor)
    batches = sampled_batches(settings, data, sample, changed, task, processor)
    with frozen(changed, settings.settings.get("freeze") or ()):
        fixed = {name for name, p in changed.named_parameters() if not p.requires_grad}
    compensate(changed, mask, batches, settings.settings.get("ridge", RIDGE), fixed)
    return changed
