"""A step of micro-batches is the step of one batch, also for models that ignore the item count."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import Trainer, TrainingArguments

from headcount.training.step import AveragingTrainer
from tests.training.test_trainer import bert, examples, settings

pytestmark = pytest.mark.filterwarnings("ignore:'pin_memory' argument is set:UserWarning")


def weights(kind: type[Trainer], folder: Path, size: int) -> Tensor:
    """After some steps of 8 examples, by plain descent, which tells how long a gradient is."""
    changes = {"per_device_train_batch_size": size, "gradient_accumulation_steps": 8 // size}
    args = TrainingArguments(**settings(folder, optim="sgd", max_grad_norm=0, **changes))
    trainer = kind(model=bert(), args=args, train_dataset=examples())
    trainer.train()
    return torch.cat([p.detach().flatten() for p in trainer.model.parameters()])


def test_micro_batches_make_the_same_step(tmp_path: Path) -> None:
    whole, parts = (weights(AveragingTrainer, tmp_path, size) for size in (8, 2))
    assert (whole - parts).abs().max() < 1e-6
    # What it is for: if this fails, the Trainer of transformers does it by itself now.
    assert (weights(Trainer, tmp_path, 2) - whole).abs().max() > 1e-3
