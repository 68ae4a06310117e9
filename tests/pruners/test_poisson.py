"""Conditional-Poisson gates: the probabilities of sets, counted one by one."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from headcount.errors import HeadcountError
from headcount.pruners.poisson import drawn_subset, inclusion

TEMPERATURES = [1e3, 10.0, 1.0, 0.1, 1e-4, 1e-8]


def by_counting(logits: Tensor, k: int, temperature: float) -> Tensor:
    sets = list(itertools.combinations(range(len(logits)), k))
    weights = torch.stack([logits[list(chosen)].sum() for chosen in sets]) / temperature
    probabilities = weights.softmax(0)
    rows = [[float(head in chosen) for head in range(len(logits))] for chosen in sets]
    return probabilities @ torch.tensor(rows, dtype=torch.float64)


def logits(size: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(size, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("temperature", [10.0, 1.0, 0.3])
@pytest.mark.parametrize("k", [1, 3, 6, 7])
def test_gates_and_gradients_are_those_of_counting(k: int, temperature: float) -> None:
    some = logits(7).requires_grad_()
    weights = logits(7, seed=1)
    gates, counted = inclusion(some, k, temperature), by_counting(some, k, temperature)
    torch.testing.assert_close(gates, counted)
    (ours,) = torch.autograd.grad((weights * gates).sum(), some)
    (theirs,) = torch.autograd.grad((weights * counted).sum(), some)
    torch.testing.assert_close(ours, theirs, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("temperature", TEMPERATURES)
@pytest.mark.parametrize(("size", "k"), [(144, 12), (144, 132), (72, 1), (5, 5), (1, 1)])
def test_gates_are_probabilities_at_every_temperature(
    size: int, k: int, temperature: float
) -> None:
    some = (5 * logits(size)).requires_grad_()
    gates = inclusion(some, k, temperature)
    gates.square().sum().backward()
    assert gates.min() >= 0
    assert gates.max() <= 1
    assert float(gates.detach().sum()) == pytest.approx(k, rel=1e-6)
    assert some.grad is not None
    assert some.grad.isfinite().all()


def test_cold_gates_are_the_best_and_warm_ones_alike() -> None:
    some = logits(20)
    best = torch.zeros(20, dtype=torch.float64)
    best[some.topk(4).indices] = 1.0
    torch.testing.assert_close(inclusion(some, 4, 1e-8), best)
    torch.testing.assert_close(
        inclusion(some, 4, 1e6), torch.full_like(some, 0.2), atol=1e-5, rtol=0
    )


def test_drawn_sets_have_k_heads_and_their_probabilities() -> None:
    some = logits(6)
    draws = torch.stack([drawn_subset(some, 2, 1.0, seed=0, step=step) for step in range(4000)])
    assert (draws.sum(1) == 2).all()
    torch.testing.assert_close(draws.mean(0), inclusion(some, 2, 1.0), atol=0.03, rtol=0)


def test_a_draw_depends_on_seed_and_step_alone() -> None:
    some = logits(30)
    torch.testing.assert_close(drawn_subset(some, 9, 1.0, 1, 2), drawn_subset(some, 9, 1.0, 1, 2))
    assert not torch.equal(drawn_subset(some, 9, 1.0, 1, 2), drawn_subset(some, 9, 1.0, 1, 3))


@pytest.mark.parametrize(("k", "temperature"), [(0, 1.0), (6, 1.0), (2, 0.0), (2, float("nan"))])
def test_what_cannot_be_is_refused(k: int, temperature: float) -> None:
    with pytest.raises(HeadcountError):
        inclusion(logits(5), k, temperature)
