"""Heads that leave in the middle of the training: the same result, with a smaller model."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import TrainerCallback

from headcount import Fixed, HeadcountError, HeadMask, Pruner, find_heads, masked, remove_heads
from headcount.pruners.attrition import Attrition
from headcount.pruners.dsp import DSPSettings, JointDSP, PipelinedDSP
from headcount.pruners.handover import Handover
from headcount.pruners.schedule import Annealing, Countdown
from headcount.training.cut_weights import cut_with_optimizer, expand
from headcount.training.trainer import PruningTrainer
from tests.training.processes import run_two_processes
from tests.training.test_trainer import (
    KEEP,
    STEPS,
    assert_same,
    bert,
    examples,
    logits,
    make_trainer,
    state,
)

HALF = 0.5
QUICK = DSPSettings(Annealing(1.0, 0.01, STEPS // 2))
SHRINKING: dict[str, Callable[[], Pruner]] = {
    "decided": lambda: JointDSP(KEEP, QUICK, commit_at=HALF),
    "attrition": lambda: Attrition(KEEP, countdown=Countdown(0.0, 0.8, 2.0), memory=0.5),
    "handover": lambda: Handover(KEEP, countdown=Countdown(0.0, 0.6), operations=2),
    # The other layer has no heads, and weights without elements, which get no gradient.
    "emptied": lambda: Fixed(like=HeadMask.from_indices(find_heads(bert()), range(KEEP))),
}


class DecidedButWhole(JointDSP):
    """The same choice at the same step, under a mask instead of a cut."""

    cuts_while_training = False  # type: ignore[assignment]

    def begin_step(self, step: int, total_steps: int) -> None:
        super().begin_step(step, total_steps)
        if step >= HALF * total_steps and self.committed is None:
            self.committed = self.mask()

    def lasting(self, step: int, total_steps: int) -> HeadMask | None:
        return None

    def gates(self) -> Tensor:
        if self.committed is None:
            return super().gates()
        # What w learns from now on decides nothing.
        return self.mask_gates().double() + 0.0 * self.w


def test_a_cut_in_the_middle_changes_nothing_but_the_size(tmp_path: Path) -> None:
    small = make_trainer(tmp_path / "a", JointDSP(KEEP, QUICK, commit_at=HALF))
    small.train()
    whole = make_trainer(tmp_path / "b", DecidedButWhole(KEEP, QUICK))
    whole.train()
    assert small.state.global_step == STEPS
    assert small.mask() == whole.mask()
    assert len(find_heads(small.model)) == KEEP
    assert len(find_heads(whole.model)) == 8
    pruned = whole.pruned_model()
    assert (logits(small.model) - logits(pruned)).abs().max() < 1e-5
    for name, value in small.pruned_model().state_dict().items():
        if name.endswith("key.bias"):  # moves no output: Adam scales the rounding of its gradient
            continue
        torch.testing.assert_close(value, pruned.state_dict()[name], rtol=0, atol=1e-6, msg=name)


def test_a_cut_training_resumes_exactly(tmp_path: Path) -> None:
    options = {"save_strategy": "steps", "save_steps": 1}
    make = SHRINKING["decided"]
    straight = make_trainer(tmp_path / "a", make(), **options)
    straight.train()
    for step in (2, 3, 5):  # before the cut, at it, after it
        begun = tmp_path / f"from-{step}"
        checkpoint = f"checkpoint-{step}"
        shutil.copytree(tmp_path / "a" / checkpoint, begun / checkpoint)
        resumed = make_trainer(begun, make(), **options)
        resumed.train(resume_from_checkpoint=str(begun / checkpoint))
        assert_same(state(straight), state(resumed))
        assert resumed.history == straight.history


def test_a_kill_at_the_cut_leaves_the_checkpoint_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"save_strategy": "steps", "save_steps": 1}
    make = SHRINKING["decided"]
    straight = make_trainer(tmp_path / "a", make(), **options)
    straight.train()

    def die(*args: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(PruningTrainer, "cut", die)
        with pytest.raises(KeyboardInterrupt):
            make_trainer(tmp_path / "b", make(), **options).train()
    # A checkpoint of the step of the cut, with all heads, would be overwritten by the one after it.
    assert sorted(path.name for path in (tmp_path / "b").glob("checkpoint-*")) == [
        "checkpoint-1",
        "checkpoint-2",
    ]
    resumed = make_trainer(tmp_path / "b", make(), **options)
    resumed.train(resume_from_checkpoint=True)
    assert_same(state(straight), state(resumed))


class Sizes(TrainerCallback):
    """How many heads the model has at each step."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.seen.append(len(find_heads(kwargs["model"])))


def test_heads_that_left_are_cut_on_the_way_and_it_changes_nothing(tmp_path: Path) -> None:
    results, sizes = [], Sizes()
    for shed in (True, False):
        pruner = Attrition(KEEP, countdown=Countdown(0.0, 0.8, 2.0), memory=0.5, shed=shed)
        trainer = make_trainer(tmp_path / str(shed), pruner, callbacks=[sizes] if shed else [])
        trainer.train()
        results.append(trainer)
    small, whole = results
    assert len(set(sizes.seen)) > 2  # in several pauses
    assert sizes.seen == sorted(sizes.seen, reverse=True)
    assert (sizes.seen[0], sizes.seen[-1]) == (8, KEEP)
    assert small.mask() == whole.mask()
    assert (logits(small.pruned_model()) - logits(whole.pruned_model())).abs().max() < 1e-5


def test_attrition_resumes_exactly(tmp_path: Path) -> None:
    options = {"save_strategy": "steps", "save_steps": 1}
    make = SHRINKING["attrition"]
    straight = make_trainer(tmp_path / "a", make(), **options)
    straight.train()
    for step in range(1, STEPS):
        begun, checkpoint = tmp_path / f"from-{step}", f"checkpoint-{step}"
        shutil.copytree(tmp_path / "a" / checkpoint, begun / checkpoint)
        resumed = make_trainer(begun, make(), **options)
        resumed.train(resume_from_checkpoint=str(begun / checkpoint))
        assert_same(state(straight), state(resumed))


def test_heads_that_cannot_return_are_shed_and_the_choice_stays(tmp_path: Path) -> None:
    # w is set far apart, so that two heads of eight are still in doubt besides the kept three.
    start = torch.tensor([40.0, 39.0, 38.0, 36.0, 35.0, -20.0, -25.0, -30.0]).double()
    results = []
    for shed in (True, False):
        settings = DSPSettings(Annealing(1.0, 0.01, 2), 1e-3, scale=None, shed=shed)
        trainer = make_trainer(tmp_path / str(shed), JointDSP(KEEP, settings))
        trainer.pruner.w.data = start.clone()
        trainer.train()
        results.append(trainer)
    cut, whole = results
    assert len(find_heads(cut.model)) == 5
    assert cut.mask() == whole.mask()
    assert (logits(cut.pruned_model()) - logits(whole.pruned_model())).abs().max() < 1e-5


def test_what_can_return_is_not_shed() -> None:
    settings = DSPSettings(Annealing(1.0, 0.01, 10), scale=None, shed=True)
    pruner = JointDSP(KEEP, settings)
    pruner.bind(find_heads(bert()))
    pruner.w.data = torch.arange(8).double()
    assert pruner.lasting(9, 100) is None  # still cooling
    assert pruner.lasting(10, 100) == HeadMask.all(pruner.bound())
    pruner.w.data = 20 * torch.arange(8).double()
    assert pruner.lasting(10, 100) == pruner.mask()


@pytest.mark.parametrize("kinds", [None, ["encoder"]])
def test_a_fixed_layout_trains_small_from_the_start(tmp_path: Path, kinds: Any) -> None:
    sizes = Sizes()
    trainer = make_trainer(tmp_path, Fixed(KEEP, kinds=kinds), callbacks=[sizes])
    trainer.train()
    assert sizes.seen == [KEEP] * STEPS
    assert trainer.mask() == HeadMask.all(find_heads(trainer.model))


def test_the_optimizer_is_cut_alike() -> None:
    model = bert()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    batch = {key: torch.stack([e[key] for e in examples(8)]) for key in ("input_ids", "labels")}
    mask = HeadMask.random(find_heads(model), keep=3, seed=1)

    def step() -> None:
        optimizer.zero_grad()
        model(**batch).loss.backward()
        optimizer.step()

    with masked(model, mask):
        step()
    heads = bert()
    heads.load_state_dict(model.state_dict())
    twin = torch.optim.AdamW(heads.parameters(), lr=1e-2)
    twin.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    cut_with_optimizer(model, mask, optimizer)
    step()
    small = logits(model)
    with masked(heads, mask):
        heads(**batch).loss.backward()
        twin.step()
        assert (logits(heads) - small).abs().max() < 1e-6
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    assert held == {id(p) for p in model.parameters()}


def test_a_loop_may_hold_its_last_loss_while_heads_are_cut() -> None:
    model = bert()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    batch = {key: torch.stack([e[key] for e in examples(8)]) for key in ("input_ids", "labels")}
    mask = HeadMask.random(find_heads(model), keep=3, seed=1)
    loss = model(**batch).loss  # its graph knows the weights by their old sizes
    loss.backward()
    optimizer.step()
    removed = cut_with_optimizer(model, mask, optimizer)
    assert len(removed) == len(HeadMask.all(find_heads(bert()))) - 3
    optimizer.zero_grad()
    model(**batch).loss.backward()
    optimizer.step()
    del loss


def test_a_small_model_in_a_whole_one_says_the_same() -> None:
    small, whole = bert(), bert()
    with torch.no_grad():
        for parameter in whole.parameters():
            parameter.add_(1.0)
    mask = HeadMask.random(find_heads(small), keep=3, seed=2)
    remove_heads(small, mask)
    expand(small, whole, mask)
    with masked(whole, mask):
        assert (logits(whole) - logits(small)).abs().max() < 1e-6
    assert (logits(whole) - logits(small)).abs().max() > 1e-3


TWO_PROCESSES = """
import os, sys
from pathlib import Path
from safetensors.torch import save_file
from tests.training.test_cutting import SHRINKING
from tests.training.test_trainer import make_trainer, state

folder = Path(sys.argv[1])
trainer = make_trainer(
    folder / "run", SHRINKING[sys.argv[2]](), per_device_train_batch_size=4,
    gradient_checkpointing=True,  # then DDP does not look for parameters without a gradient
)
trainer.train()
save_file(state(trainer), folder / f"rank{os.environ['RANK']}.safetensors")
"""


@pytest.mark.parametrize("how", SHRINKING)
def test_two_processes_cut_alike(tmp_path: Path, how: str) -> None:
    run_two_processes(TWO_PROCESSES, tmp_path, how)
    first, second = (load_file(tmp_path / f"rank{rank}.safetensors") for rank in (0, 1))
    assert_same(first, second)
    alone = make_trainer(tmp_path / "alone", SHRINKING[how]())
    alone.train()
    assert {k: v.shape for k, v in first.items()} == {k: v.shape for k, v in state(alone).items()}
    assert len(find_heads(alone.model)) == KEEP


@pytest.mark.parametrize("seed", range(4))
def test_a_head_that_was_cut_does_not_come_back(tmp_path: Path, seed: int) -> None:
    # Without annealing w moves to the end, also that of heads which are not there any more.
    pruner = JointDSP([5, 2], DSPSettings(Annealing(1.0, 1.0, None)), commit_at=0.3, seed=seed)
    trainer = make_trainer(tmp_path, pruner, max_steps=20)
    trainer.train()
    there = HeadMask.all(find_heads(trainer.model))
    assert len(there) == 5
    assert trainer.mask(5) == there and trainer.mask(2) & there == trainer.mask(2)
    gates = pruner.gates().detach()
    assert gates.sum() == pytest.approx(pruner.step_count)
    assert (gates != 0).sum() <= 5
    assert len(find_heads(trainer.pruned_model(2))) == 2


def test_an_optimizer_that_cannot_be_cut_is_told(tmp_path: Path) -> None:
    trainer = make_trainer(
        tmp_path, JointDSP(KEEP, QUICK, commit_at=HALF), optim="adafactor", learning_rate=1e-3
    )
    with pytest.raises(HeadcountError, match="the state of Adafactor cannot be cut"):
        trainer.train()


def test_what_cannot_be_cut_is_told(tmp_path: Path) -> None:
    with pytest.raises(HeadcountError, match="load_best_model_at_end"):
        make_trainer(
            tmp_path, JointDSP(KEEP, commit_at=HALF), load_best_model_at_end=True,
            eval_strategy="steps", save_strategy="steps", eval_steps=2, save_steps=2,
        )  # fmt: skip
    with pytest.raises(HeadcountError, match="save_only_model"):
        make_trainer(tmp_path, Fixed(KEEP), save_only_model=True)
    with pytest.raises(HeadcountError, match="nothing to train on"):
        PipelinedDSP(KEEP, commit_at=HALF)
    with pytest.raises(HeadcountError, match=r"commit_at of joint-dsp is 1\.5"):
        JointDSP(KEEP, commit_at=1.5)
