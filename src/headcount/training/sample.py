"""A sample of a trainer's own data, for a pruner that looks at the model in the middle of it."""

from __future__ import annotations

import random
from typing import Any

from datasets import Dataset
from torch.utils.data import DataLoader, Subset
from transformers import Trainer

from headcount.errors import HeadcountError
from headcount.pruners.michel import Batch


def sampled(trainer: Trainer, number: int) -> list[Batch]:
    """Batches of so many training examples, or of all if they are fewer; the seed draws them.

    Every process gets the same ones, wherever in the training it is.
    """
    data: Any = trainer.train_dataset
    if not hasattr(data, "__len__"):
        raise HeadcountError(
            f"a sample of the training data is needed, but a {type(data).__name__} has no known "
            "length; give a data set that has one"
        )
    drawn = random.Random(trainer.args.seed).sample(range(len(data)), min(number, len(data)))
    collate: Any = trainer.data_collator
    if isinstance(data, Dataset):
        data = trainer._remove_unused_columns(data, "sample")
    else:
        collate = trainer._get_collator_with_removed_columns(collate, "sample")
    loader = DataLoader(
        Subset(data, sorted(drawn)), trainer.args.eval_batch_size, collate_fn=collate
    )
    return [dict(trainer._prepare_inputs(batch)) for batch in loader]
