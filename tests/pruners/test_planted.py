"""Each learned pruner finds heads that were planted, one in each layer or one in all."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headcount.pruners.base import Pruner
from headcount.pruners.dsp import JointDSP, PipelinedDSP
from headcount.pruners.fixed import Random
from headcount.pruners.hard_concrete import HardConcrete
from headcount.pruners.ste import STE
from tests.pruners.toy import HEADS, LAYERS, learn

Make = Callable[[int, int], Pruner]  # from K and a seed
LEARNED: dict[str, Make] = {
    "joint-dsp": lambda keep, seed: JointDSP(keep, seed=seed),
    "pipelined-dsp": lambda keep, seed: PipelinedDSP(keep, seed=seed),
    "ste": lambda keep, seed: STE(keep, seed=seed),
    "hard-concrete": lambda keep, seed: HardConcrete(keep, seed=seed),
    "hard-concrete-penalty": lambda keep, seed: HardConcrete(seed=seed),
}


def found(
    make: Make, alone: bool, steps: int, seeds: int, learning_rate: float
) -> tuple[int, int, int]:
    """How many heads were found, planted and kept in as many tasks as there are seeds."""
    keep = 1 if alone else LAYERS
    pairs = [learn(make(keep, seed), seed, steps, learning_rate, alone) for seed in range(seeds)]
    return (
        sum(len(mask & there) for mask, there in pairs),
        sum(len(there) for _, there in pairs),
        sum(len(mask) for mask, _ in pairs),
    )


def share(make: Make, steps: int, seeds: int, learning_rate: float) -> float:
    """The share of planted heads that were found; 0 if more than half of all heads were kept."""
    total = [0, 0, 0]
    for alone in (False, True):
        counts = found(make, alone, steps, seeds, learning_rate)
        total = [before + count for before, count in zip(total, counts, strict=True)]
    # A pruner without a K could find all by closing none.
    return total[0] / total[1] if total[2] <= seeds * LAYERS * HEADS else 0.0


@pytest.mark.parametrize(("name", "learning_rate"), [("joint-dsp", 1e-4), ("pipelined-dsp", 0.0)])
def test_dsp_finds_planted_heads_in_200_steps(name: str, learning_rate: float) -> None:
    hits, there, _ = found(LEARNED[name], False, 200, 4, learning_rate)
    assert hits >= 0.75 * there


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ste", "hard-concrete", "hard-concrete-penalty"])
def test_the_others_do_better_than_chance_in_200_steps(name: str) -> None:
    # Chance finds 0.21.
    assert share(LEARNED[name], 200, 2, 0.0) >= 0.5


@pytest.mark.slow
@pytest.mark.parametrize("name", ["joint-dsp", "pipelined-dsp"])
@pytest.mark.parametrize("steps", [1000, 2000])
def test_dsp_finds_planted_heads_in_longer_trainings(name: str, steps: int) -> None:
    assert share(LEARNED[name], steps, 4, 1e-4) >= 0.9


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ste", "hard-concrete"])
def test_the_others_find_most_of_them(name: str) -> None:
    assert share(LEARNED[name], 1000, 4, 1e-4) >= 0.75


def test_a_random_choice_does_not_pass_for_finding() -> None:
    assert share(lambda keep, seed: Random(keep, seed=seed), 1, 10, 1e-4) < 0.4
