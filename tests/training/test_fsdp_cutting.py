"""Heads that are cut while two processes train a sharded model: the same as in one process."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate.utils import DistributedType
from torch import Tensor
from torch.distributed.tensor import DTensor
from transformers import BertForSequenceClassification, TrainingArguments

from headcount import Countdown, Fixed, Handover, HeadcountError, HeadMask, Pruner, find_heads
from headcount.pruners.attrition import Attrition
from headcount.pruners.dsp import JointDSP
from headcount.pruners.handover import AT_ONCE
from headcount.training import Distillation, PruningTrainer
from headcount.training.cutting import refuse_uncuttable
from tests.training.processes import run_two_processes
from tests.training.test_cutting import QUICK, Sizes
from tests.training.test_fsdp import OLD
from tests.training.test_trainer import KEEP, assert_same, bert, examples, logits, settings, state

STEPS = 8
# In double precision; sums over two half batches are rounded differently.
TOLERANCE = 1e-9
PRUNERS: dict[str, Callable[[], Pruner]] = {
    # In the middle, as by default: learn, operate, and start again with a fresh optimizer.
    "handover": lambda: Handover(KEEP),
    # The optimizer's state is cut twice, and goes on.
    "operations": lambda: Handover(KEEP, operations=2, anew=False),
    "at-once": lambda: Handover(KEEP, countdown=AT_ONCE),
    "last-step": lambda: Handover(KEEP, countdown=Countdown(0.0, 1.0)),
    "attrition": lambda: Attrition(KEEP, countdown=Countdown(0.0, 0.8, 2.0), memory=0.5),
    "attrition-commit": lambda: Attrition(KEEP, memory=0.5, commit_at=0.5),
    "joint-commit": lambda: JointDSP(KEEP, QUICK, commit_at=0.5),
    # The other layer has no heads, and weights without elements, which torch cannot gather.
    "emptied": lambda: Fixed(like=HeadMask.from_indices(find_heads(bert()), range(KEEP))),
}
# These learn from the model as it was before its first operation. Not from its hidden states: their
# distance is a ratio of means over a process's part of the batch, so half batches differ by 1e-5.
TAUGHT = {"operations", "at-once"}

pytestmark = [
    pytest.mark.filterwarnings("ignore:'pin_memory' argument is set:UserWarning"),
    pytest.mark.skipif(OLD, reason="torch 2.6 cannot shard on a CPU"),
]


def make(folder: Path, name: str, **changes: Any) -> tuple[PruningTrainer, Sizes]:
    args = TrainingArguments(
        **settings(
            folder, max_steps=STEPS, adam_epsilon=1e-3, warmup_steps=1, eval_strategy="steps",
            eval_steps=3, save_strategy="steps", save_steps=1, **changes,
        )
    )  # fmt: skip
    if args.fsdp:
        # `accelerate` shards on accelerators only, though torch can on a CPU.
        args.distributed_state.distributed_type = DistributedType.MULTI_GPU
        args.distributed_state.device = torch.device("cpu")
    sizes = Sizes()
    trainer = PruningTrainer(
        model=bert().double(), pruner=PRUNERS[name](), args=args, train_dataset=examples(),
        eval_dataset=examples(16), callbacks=[sizes],
        distillation=Distillation(0.7, hidden=False) if name in TAUGHT else None,
    )  # fmt: skip
    return trainer, sizes


def results(trainer: PruningTrainer, sizes: Sizes) -> dict[str, Tensor]:
    """All that the training led to; cuts the model."""
    told = [log["eval_loss"] for log in trainer.state.log_history if "eval_loss" in log]
    told.append(trainer.evaluate()["eval_loss"])
    small = trainer.pruned_model()
    assert len(find_heads(small)) == len(trainer.mask()) == KEEP
    assert not any(isinstance(p, DTensor) for p in small.parameters())
    return {
        **state(trainer), "logits": logits(small), "told": torch.tensor(told),
        "heads": torch.tensor(trainer.mask().indices), "sizes": torch.tensor(sizes.seen),
    }  # fmt: skip


def sharded_run(folder: Path, name: str, kind: str, resumed_from: Iterable[int]) -> None:
    """Train, go on from some of the checkpoints in other trainings, and compare."""
    changes = {
        "per_device_train_batch_size": 4, "fsdp": True, "fsdp_config": {
            "version": 2, "state_dict_type": kind, "transformer_layer_cls_to_wrap": "BertLayer",
        },
    }  # fmt: skip
    trainer, sizes = make(folder / "whole", name, **changes)
    trainer.train()
    ends_sharded = any(isinstance(p, DTensor) for p in trainer.model.parameters())
    assert ends_sharded == (name != "last-step")
    found = results(trainer, sizes)
    trainer.save_model(str(folder / "small"))
    for step in resumed_from:
        begun = folder / f"from-{step}"
        if os.environ["RANK"] == "0":
            shutil.copytree(folder / "whole" / f"checkpoint-{step}", begun / f"checkpoint-{step}")
            if name in TAUGHT:
                shutil.copy(folder / "whole" / "teacher.safetensors", begun)
        torch.distributed.barrier()
        again, fewer = make(begun, name, **changes)
        again.train(resume_from_checkpoint=True)
        assert again.history == trainer.history
        resumed = results(again, fewer)
        assert_same(found | {"sizes": found["sizes"][step:]}, resumed)
    torch.save(found, folder / f"{os.environ['RANK']}.pt")


SCRIPT = """
import sys
from pathlib import Path
import torch
from tests.training.test_fsdp_cutting import sharded_run
folder, names, kind, *steps = sys.argv[1:]
for name in names.split(","):
    (Path(folder) / name).mkdir(exist_ok=True)
    sharded_run(Path(folder) / name, name, kind, map(int, steps))
torch.distributed.destroy_process_group()
"""


def compare(folder: Path, names: list[str], kind: str, resumed_from: list[int]) -> None:
    run_two_processes(SCRIPT, folder, ",".join(names), kind, *map(str, resumed_from))
    for name in names:
        first, second = (torch.load(folder / name / f"{rank}.pt") for rank in (0, 1))
        assert_same(first, second)
        alone, sizes = make(folder / name / "alone", name)
        alone.train()
        assert_same(first, results(alone, sizes), TOLERANCE)
        saved = BertForSequenceClassification.from_pretrained(str(folder / name / "small"))
        torch.testing.assert_close(logits(saved), first["logits"], rtol=0, atol=1e-6)


def test_a_handover_of_a_sharded_model_equals_that_of_one_process(tmp_path: Path) -> None:
    compare(tmp_path, ["handover"], "FULL_STATE_DICT", [])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["FULL_STATE_DICT", "SHARDED_STATE_DICT"])
@pytest.mark.parametrize("name", PRUNERS)
def test_sharded_models_are_cut_and_resume_before_at_and_after_it(
    tmp_path: Path, name: str, kind: str
) -> None:
    compare(tmp_path, [name], kind, [1, 4, 7])


def test_other_shards_are_refused(tmp_path: Path) -> None:
    args = TrainingArguments(**settings(tmp_path))
    refuse_uncuttable(args, unknown_shards=False)
    with pytest.raises(HeadcountError, match=r"FSDP 1 or DeepSpeed.*use FSDP 2"):
        refuse_uncuttable(args, unknown_shards=True)
