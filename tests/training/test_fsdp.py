"""Training with a pruner beside a model that is sharded over two processes, on tiny real models."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate.utils import DistributedType
from torch import Tensor
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel
from transformers import BertForSequenceClassification, TrainerCallback, TrainingArguments

from headcount import find_heads
from headcount.pruners.base import Pruner
from headcount.pruners.dsp import JointDSP, PipelinedDSP
from headcount.training import PruningTrainer
from tests.training.processes import run_two_processes
from tests.training.test_trainer import (
    KEEP,
    MILD,
    assert_same,
    bert,
    examples,
    logits,
    settings,
    state,
)

HALF, WHOLE = 10, 20
OLD = torch.__version__.startswith(("2.6.", "2.7.", "2.8."))
# What FSDP 1 does not do on a CPU: send the weights around, and gather them for a checkpoint.
FSDP = {
    1: {"version": 1, "sync_module_states": False, "state_dict_type": "SHARDED_STATE_DICT"},
    2: {"version": 2},
}
# Low temperatures make 5e-4 of how the sum over two half batches is rounded in single precision,
# also in one process. FSDP 1 clips nothing else, so it is compared with a sum of two halves.
DTYPE = {1: torch.float32, 2: torch.float64}
ALONE = {1: {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2}, 2: {}}
TOLERANCE = {1: 1e-5, 2: 1e-9}
PRUNERS: dict[str, Callable[[], Pruner]] = {
    "joint": lambda: JointDSP(KEEP, replace(MILD, clip="with-model")),
    "pipelined": lambda: PipelinedDSP(KEEP, MILD),
}

pytestmark = [
    pytest.mark.filterwarnings("ignore:'pin_memory' argument is set:UserWarning"),
]


class _Gates(TrainerCallback):
    """Notes the gates of every step."""

    def __init__(self) -> None:
        self.trainer: PruningTrainer | None = None
        self.seen: list[Tensor] = []

    def on_pre_optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        assert self.trainer is not None
        self.seen.append(self.trainer.pruner_step.values().detach().clone())


def make(
    folder: Path, name: str, dtype: torch.dtype, **changes: Any
) -> tuple[PruningTrainer, _Gates]:
    args = TrainingArguments(**settings(folder, max_steps=WHOLE, adam_epsilon=1e-3, **changes))
    if args.fsdp:
        # `accelerate` shards on accelerators only, though torch can on a CPU.
        args.distributed_state.distributed_type = DistributedType.MULTI_GPU
        args.distributed_state.device = torch.device("cpu")
    gates = _Gates()
    trainer = PruningTrainer(
        model=bert().to(dtype), pruner=PRUNERS[name](), args=args, train_dataset=examples(),
        eval_dataset=examples(16), callbacks=[gates],
    )  # fmt: skip
    gates.trainer = trainer
    return trainer, gates


def results(trainer: PruningTrainer, gates: _Gates) -> dict[str, Tensor]:
    """All that the training led to; cuts the model."""
    before = trainer.evaluate()["eval_loss"]
    small = trainer.pruned_model()
    assert trainer.evaluate()["eval_loss"] == pytest.approx(before, abs=1e-6)
    assert len(find_heads(small)) == len(trainer.mask()) == KEEP
    assert all(type(p) is torch.nn.Parameter and p.requires_grad for p in small.parameters())
    return {**state(trainer), "gates": torch.stack(gates.seen), "logits": logits(small)}


def sharded_run(folder: Path, name: str, version: int) -> None:
    """Train, stop half-way in another training that goes on from there, and compare."""
    changes = {
        "per_device_train_batch_size": 4, "save_strategy": "steps", "save_steps": HALF,
        "fsdp": True, "fsdp_config": FSDP[version] | {"transformer_layer_cls_to_wrap": "BertLayer"},
    }  # fmt: skip
    whole, gates = make(folder / "whole", name, DTYPE[version], **changes)
    whole.train()
    kind = FSDPModule if version == 2 else FullyShardedDataParallel
    assert any(isinstance(module, kind) for module in whole.model.modules())
    again, later = make(folder / "again", name, DTYPE[version], **changes)
    again.train(resume_from_checkpoint=str(folder / "whole" / f"checkpoint-{HALF}"))
    # `accelerate` forgets the model's optimizer where FSDP 1 saves shards, so the model goes other
    # ways after a step; what the pruner did in that step shows in the next one's gates.
    same = 2 if version == 1 and name == "joint" else WHOLE - HALF
    assert len(later.seen) == WHOLE - HALF
    for one, other in zip(later.seen[:same], gates.seen[HALF:], strict=False):
        assert torch.equal(one, other)
    found, resumed = results(whole, gates), results(again, later)
    if version == 2:
        assert_same(found | {"gates": resumed["gates"]}, resumed)
    whole.save_model(str(folder / "small"))
    torch.save(found, folder / f"{os.environ['RANK']}.pt")


SCRIPT = """
import sys
from pathlib import Path
import torch
from tests.training.test_fsdp import sharded_run
for name in ("joint", "pipelined"):
    (Path(sys.argv[1]) / name).mkdir(exist_ok=True)
    sharded_run(Path(sys.argv[1]) / name, name, int(sys.argv[2]))
torch.distributed.destroy_process_group()
"""


@pytest.mark.parametrize(
    "version",
    [
        pytest.param(1, marks=pytest.mark.slow),
        pytest.param(2, marks=pytest.mark.skipif(OLD, reason="torch 2.6 cannot do it on a CPU")),
    ],
)
def test_sharded_training_equals_that_of_one_process(version: int, tmp_path: Path) -> None:
    run_two_processes(SCRIPT, tmp_path, str(version))
    for name in PRUNERS:
        first, second = (torch.load(tmp_path / name / f"{rank}.pt") for rank in (0, 1))
        assert_same(first, second)
        alone, gates = make(tmp_path / "alone", name, DTYPE[version], **ALONE[version])
        alone.train()
        assert_same(first, results(alone, gates), TOLERANCE[version])
        saved = BertForSequenceClassification.from_pretrained(str(tmp_path / name / "small"))
        torch.testing.assert_close(logits(saved), first["logits"], rtol=0, atol=1e-6)
