"""Heads leave one after another, the least felt first, and none comes back."""

from __future__ import annotations

import itertools

import pytest
import torch

import headcount as hc
from headcount.errors import HeadcountError
from headcount.pruners.attrition import Attrition
from headcount.pruners.schedule import Countdown
from tests.tiny import build, family_named

STEPS = 20


def test_the_countdown_begins_with_all_and_ends_with_k() -> None:
    countdown = Countdown(0.1, 0.6)
    counts = [countdown.count(step, 100, 72, 6) for step in range(101)]
    assert counts[:11] == [72] * 11
    assert counts[60:] == [6] * 41
    assert counts == sorted(counts, reverse=True)
    lost = [a - b for a, b in itertools.pairwise(counts[10:61])]
    assert sum(lost[:10]) > sum(lost[-30:])  # most of them early
    assert Countdown(0.0, 1.0, 1.0).count(50, 100, 72, 6) == 39
    assert [Countdown(0.5, 0.5).count(step, 4, 72, 6) for step in range(5)] == [72, 72, 6, 6, 6]


@pytest.mark.parametrize("said", [(0.5, 0.4), (-0.1, 0.5), (0.1, 1.5), (0.1, 0.5, 0.0)])
def test_a_countdown_that_is_none_is_refused(said: tuple[float, ...]) -> None:
    with pytest.raises(HeadcountError, match="countdown"):
        Countdown(*said)


def test_none_can_leave_before_any_was_felt() -> None:
    with pytest.raises(HeadcountError, match="has felt no head before the first step"):
        Attrition(keep=2, countdown=Countdown(0.0, 0.0))


def test_the_least_felt_leave_first_and_stay_away() -> None:
    model = build(family_named("bert"))
    heads = hc.find_heads(model)
    pruner = Attrition(keep=2, balance=False, memory=0.5)
    worth = torch.linspace(1, 2, len(heads), dtype=torch.float64)
    before = len(heads)
    with pruner.attached(model) as gated:
        for step in range(STEPS):
            gated.begin_step(step, STEPS)
            gates = pruner.gates()
            there = int(gates.sum())
            assert there == pruner.settings.countdown.count(step, STEPS, len(heads), 2) <= before
            assert (gates[len(heads) - there :] == 1).all()
            before = there
            # Heads that left are felt most: they stay away all the same.
            (gates * torch.where(gates > 0, worth, 9.0)).sum().backward()
    assert pruner.mask().indices == (len(heads) - 2, len(heads) - 1)


def test_blocks_are_compared_by_their_own_size() -> None:
    model = build(family_named("bert"))
    heads = hc.find_heads(model)
    size = heads.blocks[0].num_heads
    pruner = Attrition(keep=len(heads.blocks))
    felt = torch.ones(len(heads), dtype=torch.float64)
    felt[::size] = 2.0  # the first head of each block
    felt[-size:] *= 1000  # the last block is louder
    with pruner.attached(model) as gated:
        for step in range(STEPS):
            gated.begin_step(step, STEPS)
            (pruner.gates() * felt).sum().backward()
    assert pruner.mask().indices == tuple(range(0, len(heads), size))


def test_a_memory_that_is_none_is_refused() -> None:
    with pytest.raises(HeadcountError, match="memory"):
        Attrition(keep=2, memory=1.0)


def test_none_is_chosen_before_any_was_felt() -> None:
    with pytest.raises(HeadcountError, match="give a commit_at that ends later"):
        Attrition(3, commit_at=0.0)
    pruner = Attrition(3, commit_at=0.05)
    pruner.bind(hc.find_heads(build("bert")))
    with pytest.raises(HeadcountError, match=r"commit_at, 0.05 of 6 steps, is there"):
        pruner.begin_step(0, 6)
