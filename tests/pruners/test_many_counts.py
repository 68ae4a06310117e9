"""Several K from one run: one w, one K per step, a nested mask for each."""

from __future__ import annotations

from collections.abc import Callable, Collection
from itertools import pairwise
from typing import Any

import pytest
import torch

from headcount import HeadcountError
from headcount.pruners.ablation import Ablation
from headcount.pruners.base import Pruner
from headcount.pruners.dsp import JointDSP, PipelinedDSP
from headcount.pruners.fixed import Random
from headcount.pruners.hard_concrete import HardConcrete
from headcount.pruners.michel import Michel
from headcount.pruners.ste import STE
from headcount.pruners.top_k import drawn_count
from headcount.runs.signature import signature
from tests.pruners.toy import LAYERS, learn
from tests.tiny import build, family_named

COUNTS = (9, 6, 3, 1)
both = pytest.mark.parametrize("make", [JointDSP, PipelinedDSP])


def test_each_k_comes_once_in_as_many_steps() -> None:
    draws = [drawn_count(COUNTS, 5, step) for step in range(400)]
    assert draws == [drawn_count(COUNTS, 5, step) for step in range(400)]
    assert all(set(draws[start : start + 4]) == set(COUNTS) for start in range(0, 400, 4))
    # in other orders, and others for other seeds
    assert len({tuple(draws[start : start + 4]) for start in range(0, 400, 4)}) > 12
    assert draws != [drawn_count(COUNTS, 6, step) for step in range(400)]


def test_one_k_is_drawn_always() -> None:
    assert {drawn_count((7,), 0, step) for step in range(20)} == {7}


@both
def test_the_gates_of_a_step_sum_to_its_k(make: type[JointDSP]) -> None:
    pruner, seen = make(COUNTS, seed=2), set()
    with pruner.attached(build("bert")) as gated:
        for step in range(8):
            gated.begin_step(step, 8)
            assert pruner.step_count == drawn_count(COUNTS, 2, step)
            assert float(pruner.gates().detach().sum()) == pytest.approx(pruner.step_count)
            seen.add(pruner.step_count)
    assert seen == set(COUNTS)


@both
def test_w_learns_from_every_k(make: type[JointDSP]) -> None:
    model, inputs = build("bert").train(), family_named("bert").inputs()
    pruner = make([6, 3])
    with pruner.attached(model) as gated:
        for step in range(2):
            gated.begin_step(step, 10)
            pruner.w.grad = None
            model(**inputs).logits.square().sum().backward()
            assert pruner.w.grad is not None
            assert pruner.w.grad.abs().sum() > 0


@pytest.mark.parametrize(
    "keep", [[9, 6, 3, 1], (1, 3, 9, 6, 3), {0.75, 0.5, 0.25, 1}, [9, 0.5, 3, 1]]
)
def test_order_and_repetition_do_not_matter(keep: Collection[int | float]) -> None:
    pruner = JointDSP(keep)
    with pruner.attached(build("bert")):
        assert pruner.counts == COUNTS
        assert tuple(pruner.masks()) == COUNTS


@pytest.mark.parametrize("least", [0, 1, 2])
def test_masks_are_nested_and_exact(least: int) -> None:
    for seed in range(20):
        pruner = JointDSP([11, 9, 8, 6], min_per_block=least, seed=seed)
        with pruner.attached(build("bert")):
            masks = pruner.masks()
            assert pruner.mask() == masks[6] == pruner.mask(0.5)
        assert [len(mask) for mask in masks.values()] == [11, 9, 8, 6]
        assert all(small < large for large, small in pairwise(masks.values()))
        assert all(min(mask.counts().values()) >= least for mask in masks.values())


def test_counts_are_of_the_scope() -> None:
    pruner = JointDSP([5, 2], kinds=["encoder"])
    with pruner.attached(build("bart")):
        assert {k: len(mask) for k, mask in pruner.masks().items()} == {5: 16 + 5, 2: 16 + 2}


def test_one_count_has_one_mask() -> None:
    pruner = JointDSP(5)
    with pruner.attached(build("bert")):
        assert pruner.masks() == {5: pruner.mask()}
        assert pruner.mask(5) == pruner.mask()


def test_a_k_that_was_not_trained_is_refused() -> None:
    pruner = JointDSP([6, 3])
    with pruner.attached(build("bert")), pytest.raises(HeadcountError, match="from 6, 3"):
        pruner.mask(4)


@pytest.mark.parametrize("keep", [[], [3, 0], [13, 3], [2.5, 2]])
def test_impossible_counts_are_refused(keep: list[float]) -> None:
    with pytest.raises(HeadcountError, match="cannot"), JointDSP(keep).attached(build("bert")):
        pass


def test_every_k_has_to_meet_the_minimum() -> None:
    with (
        pytest.raises(HeadcountError, match="at least 2 in each of 3 blocks"),
        JointDSP([9, 5], min_per_block=2).attached(build("bert")),
    ):
        pass


@pytest.mark.parametrize("make", [STE, HardConcrete, Michel, Ablation, Random])
def test_other_pruners_take_one_k(make: Callable[..., Pruner]) -> None:
    with pytest.raises(HeadcountError, match="chooses for one K"):
        make([6, 3])


def test_the_signature_tells_what_was_trained_for() -> None:
    class Task:
        def signature(self, split: str) -> str:
            return split

    task: Any = Task()
    pruner = JointDSP([6, 3])
    with pruner.attached(build("bert")):
        line = signature(pruner, (3, 12), task, "dev", 0, 1)
    assert line.startswith("method:joint-dsp|keep:3/12|trained:6+3|tau:")


@pytest.mark.slow
def test_one_run_finds_planted_heads_as_separate_runs_do() -> None:
    # As many steps as two runs of 200 have, of which three quarters are asked with K = 3.
    hits = {2 * LAYERS: 0, LAYERS: 0}
    for seed in range(2):
        pruner = JointDSP(list(hits), seed=seed)
        _, there = learn(pruner, seed, 400, 1e-4)
        for count, mask in pruner.masks().items():
            hits[count] += len(mask & there)
    assert hits[LAYERS] >= 0.75 * 2 * LAYERS
    assert hits[2 * LAYERS] >= 0.9 * 2 * LAYERS


def test_a_step_repeats_exactly() -> None:
    gates = []
    for first in (0, 5):  # a run that is resumed begins in the middle
        pruner = JointDSP(COUNTS, seed=1)
        with pruner.attached(build("bert")) as gated:
            for step in range(first, 8):
                gated.begin_step(step, 10)
            gates.append(pruner.gates().detach())
    assert torch.equal(*gates)
