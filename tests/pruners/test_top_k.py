"""Soft top-K is eq. 14-19 of the DSP paper, with a gradient that exists at every temperature."""

from __future__ import annotations

import math
from itertools import permutations
from typing import Any

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from headcount.errors import HeadcountError
from headcount.pruners.top_k import gumbel_noise, hard_top_k, soft_top_k

TEMPERATURES = [1e3, 1e2, 10.0, 1.0, 0.3, 0.1]
SIZES = [(1, 1), (2, 1), (2, 2), (5, 3), (12, 12), (72, 6), (144, 12), (144, 72), (144, 132)]


def random(*shape: int, seed: int = 0, spread: float = 1.0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return spread * (torch.rand(shape, generator=generator, dtype=torch.float64) - 0.5)


def transcribed(logits: Tensor, k: int, temperature: float) -> Tensor:
    """Eq. 14-19, letter by letter."""
    r, gates = logits, torch.zeros_like(logits)
    for _ in range(k):
        p = torch.softmax(r / temperature, dim=-1)
        gates = gates + p
        r = r + torch.log(1 - p)
    return gates


def exact(
    logits: Tensor, k: int, temperature: float, grad: Tensor
) -> tuple[list[float], list[float]]:
    """Eq. 14-19 and the gradient of Σ grad · gates, with a hundred digits."""
    with mpmath.workdps(100):
        tau, direct = mpmath.mpf(temperature), [mpmath.mpf(x) for x in grad.tolist()]
        r = [mpmath.mpf(x) for x in logits.tolist()]
        gates, adjoint, steps = [mpmath.mpf(0)] * len(r), [mpmath.mpf(0)] * len(r), []
        for _ in range(k):
            exps = [mpmath.exp((x - max(r)) / tau) for x in r]
            z, m = mpmath.fsum(exps), exps.index(max(exps))
            left = [(z - x) / z for x in exps]
            left[m] = mpmath.fsum(exps[:m] + exps[m + 1 :]) / z
            steps.append(([x / z for x in exps], left))
            gates = [g + x / z for g, x in zip(gates, exps, strict=True)]
            r = [x + mpmath.log(y) for x, y in zip(r, left, strict=True)]
        for p, left in reversed(steps):
            v = [g - a / y for g, a, y in zip(direct, adjoint, left, strict=True)]
            mean = mpmath.fsum(x * y for x, y in zip(p, v, strict=True))
            adjoint = [a + x * (y - mean) / tau for a, x, y in zip(adjoint, p, v, strict=True)]
        return [float(x) for x in gates], [float(x) for x in adjoint]


def gates_and_gradient(
    function: object, logits: Tensor, k: int, temperature: float
) -> tuple[Tensor, Tensor]:
    logits = logits.detach().requires_grad_()
    gates = function(logits, k, temperature)  # type: ignore[operator]
    (gradient,) = torch.autograd.grad(gates, logits, random(*logits.shape, seed=9))
    return gates.detach(), gradient


def assert_close(actual: Tensor, expected: Tensor, tolerance: float = 1e-10) -> None:
    """Absolute, or relative to the largest number where that is larger than 1."""
    assert (actual - expected).abs().max() <= tolerance * max(1.0, float(expected.abs().max()))


def assert_sound(logits: Tensor, k: int, temperature: float) -> Tensor:
    gates, gradient = gates_and_gradient(soft_top_k, logits, k, temperature)
    assert torch.isfinite(gates).all() and torch.isfinite(gradient).all()
    assert (gates >= 0).all()
    assert (gates.sum(-1) - k).abs().max() < 1e-9
    return gradient


# Values


@pytest.mark.parametrize("temperature", [*TEMPERATURES, 1e-2, 1e-4, 1e-8])
@pytest.mark.parametrize(("size", "k"), SIZES)
def test_gates_sum_to_k(size: int, k: int, temperature: float) -> None:
    noise = gumbel_noise((3, size), seed=0, step=7)
    gates = soft_top_k(random(3, size), k, temperature, noise)
    assert (gates.sum(-1) - k).abs().max() < 1e-9


@pytest.mark.parametrize("temperature", TEMPERATURES)
@pytest.mark.parametrize(("size", "k"), SIZES)
def test_gates_and_gradient_are_those_of_the_equations(
    size: int, k: int, temperature: float
) -> None:
    if size == 1:
        return  # log(1 - 1): the equations have no gradient
    logits = random(size, spread=2.0)
    gates, gradient = gates_and_gradient(soft_top_k, logits, k, temperature)
    expected_gates, expected_gradient = gates_and_gradient(transcribed, logits, k, temperature)
    assert_close(gates, expected_gates)
    assert_close(gradient, expected_gradient)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("temperature", [3e-2, 1e-2, 3e-3, 1e-3, 1e-4, 1e-6])
def test_gates_and_gradient_are_exact_where_the_equations_overflow(
    temperature: float, seed: int
) -> None:
    logits, grad = random(6, seed=seed), random(6, seed=9)
    gates, gradient = gates_and_gradient(soft_top_k, logits, 4, temperature)
    expected_gates, expected_gradient = exact(logits, 4, temperature, grad)
    assert_close(gates, torch.tensor(expected_gates, dtype=torch.float64))
    assert_close(gradient, torch.tensor(expected_gradient, dtype=torch.float64), 1e-9)


def test_even_a_vanishing_gradient_is_exact() -> None:
    logits, grad = torch.tensor([0.3, 0.2, 0.1], dtype=torch.float64), random(3, seed=9)
    _, gradient = gates_and_gradient(soft_top_k, logits, 1, 1e-3)
    _, expected = exact(logits, 1, 1e-3, grad)
    assert 0 < abs(expected[0]) < 1e-30
    assert gradient.tolist() == pytest.approx(expected, rel=1e-12, abs=1e-80)


def test_rows_do_not_see_each_other() -> None:
    logits = random(2, 3, 17)
    together, gradient = gates_and_gradient(soft_top_k, logits, 5, 0.2)
    expected, expected_gradient = gates_and_gradient(transcribed, logits, 5, 0.2)
    assert together.shape == logits.shape
    assert_close(together, expected)
    assert_close(gradient, expected_gradient)
    assert soft_top_k(random(0, 4), 2, 1.0).shape == (0, 4)


@pytest.mark.parametrize("temperature", [1e3, 1.0, 0.1, 1e-8])
def test_order_of_the_heads_does_not_matter(temperature: float) -> None:
    logits, order = random(30), torch.randperm(30, generator=torch.Generator().manual_seed(1))
    gates = soft_top_k(logits, 11, temperature)
    assert_close(soft_top_k(logits[order], 11, temperature), gates[order])


@pytest.mark.parametrize("k", [1, 7, 29, 30])
def test_cold_gates_are_the_hard_ones(k: int) -> None:
    logits = random(4, 30)
    assert_close(soft_top_k(logits, k, 1e-8), hard_top_k(logits, k), 1e-12)
    assert_close(soft_top_k(logits, k, 1e-200), hard_top_k(logits, k), 1e-12)


@pytest.mark.parametrize("temperature", [1e3, 1.0, 1e-3, 1e-8])
def test_equal_heads_share_equally(temperature: float) -> None:
    alike = soft_top_k(torch.full((9,), 3.0), 4, temperature)
    assert_close(alike, torch.full((9,), 4 / 9, dtype=torch.float64), 1e-12)
    gates = soft_top_k(torch.tensor([9.0, 7.0, 7.0, 7.0, 3.0, 3.0, 3.0, 1.0]), 6, temperature)
    for group in (gates[1:4], gates[4:7]):
        assert_close(group, group.mean().expand(3), 1e-14)


def test_hot_gates_are_all_equal() -> None:
    assert_close(soft_top_k(random(144), 12, 1e3), torch.full((144,), 1 / 12), 1e-3)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.int64])
def test_arithmetic_is_float64_whatever_the_logits_are(dtype: torch.dtype) -> None:
    logits = random(20, spread=20.0).to(dtype)
    gates = soft_top_k(logits, 7, 0.5)
    assert gates.dtype == torch.float64
    assert torch.equal(gates, soft_top_k(logits.double(), 7, 0.5))


# Gradients


@pytest.mark.parametrize("temperature", [100.0, 1.0, 0.2])
@pytest.mark.parametrize(("shape", "k"), [((1,), 1), ((5,), 2), ((4,), 4), ((2, 3), 2)])
def test_gradcheck(shape: tuple[int, ...], k: int, temperature: float) -> None:
    logits, noise = random(*shape).requires_grad_(), random(*shape, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: soft_top_k(x, k, temperature), logits)
    assert torch.autograd.gradcheck(lambda x, y: soft_top_k(x, k, temperature, y), (logits, noise))


def test_gradcheck_of_ties_and_of_a_head_apart() -> None:
    for values in ([0.5, 0.5, 0.5, 0.1], [3.0, 0.1, 0.0, 0.05]):
        logits = torch.tensor(values, dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradcheck(lambda x: soft_top_k(x, 2, 0.4), logits)


def test_noise_receives_the_gradient_of_the_logits() -> None:
    logits = random(3, 9).requires_grad_()
    noise = gumbel_noise((3, 9), seed=0, step=0).requires_grad_()
    soft_top_k(logits, 4, 0.3, noise).square().sum().backward()
    assert logits.grad is not None and noise.grad is not None
    assert torch.equal(logits.grad, noise.grad)


def test_one_row_of_logits_collects_the_gradient_of_all_rows_of_noise() -> None:
    logits, noise = random(9).requires_grad_(), gumbel_noise((5, 9), seed=0, step=0)
    (together,) = torch.autograd.grad(soft_top_k(logits, 4, 0.3, noise).square().sum(), logits)
    rows = [soft_top_k(logits, 4, 0.3, row).square().sum() for row in noise]
    (expected,) = torch.autograd.grad(torch.stack(rows).sum(), logits)
    assert_close(together, expected)


def test_only_one_number_per_step_and_head_is_kept_for_the_backward_pass() -> None:
    kept: list[Tensor] = []
    logits = random(144).requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x) or x, lambda x: x):
        soft_top_k(logits, 132, 0.1)
    own = [x for x in kept if x.data_ptr() != logits.data_ptr()]  # the logits are there anyway
    assert sum(x.numel() * x.element_size() for x in own) == 132 * 144 * 8


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_gradient_that_arrives_broken_leaves_broken(bad: float) -> None:
    logits = random(5).requires_grad_()
    (gradient,) = torch.autograd.grad(
        soft_top_k(logits, 2, 1.0), logits, torch.full((5,), bad, dtype=torch.float64)
    )
    assert torch.isnan(gradient).all()


# Finite at every temperature


@st.composite
def problems(draw: st.DrawFn) -> tuple[Tensor, int, float]:
    size = draw(st.integers(1, 40))
    levels = draw(st.sampled_from([1, 2, 3, 10, 10**15]))  # few levels: many ties
    spread = draw(st.sampled_from([1e-6, 1e-3, 1.0, 200.0]))
    numbers = draw(st.lists(st.integers(0, levels), min_size=size, max_size=size))
    logits = torch.tensor(numbers, dtype=torch.float64) / levels - 0.5
    temperature = 10.0 ** draw(st.floats(-8, 3))
    return spread * logits, draw(st.integers(1, size)), temperature


@given(problems())
@settings(max_examples=400, deadline=None)
def test_gates_and_gradient_are_finite(problem: tuple[Tensor, int, float]) -> None:
    assert_sound(*problem)


@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_gradient_of_the_sum_is_zero(temperature: float) -> None:
    logits = random(40).requires_grad_()
    (gradient,) = torch.autograd.grad(soft_top_k(logits, 30, temperature).sum(), logits)
    assert gradient.abs().max() < 1e-13


@pytest.mark.parametrize("temperature", [1e3, 1.0, 1e-2, 1e-4, 1e-8])
@pytest.mark.parametrize("k", [1, 100, 2047, 2048])
def test_thousands_of_heads_are_finite(k: int, temperature: float) -> None:
    logits = random(2048, spread=200.0)
    logits[::5] = logits[0]  # ties
    assert_sound(logits, k, temperature)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
def test_gradient_saturates_instead_of_overflowing(dtype: torch.dtype) -> None:
    gradient = assert_sound(random(512).to(dtype), 480, 3e-4)
    assert gradient.dtype == dtype
    assert gradient.abs().max() == min(1e100, torch.finfo(dtype).max)


def test_sum_of_saturated_gradients_is_finite() -> None:
    logits = random(512).float().requires_grad_()
    gates = soft_top_k(logits, 480, 3e-4, torch.zeros(4, 512))
    (gradient,) = torch.autograd.grad(gates, logits, random(512, seed=9).expand(4, 512))
    assert torch.isfinite(gradient).all()
    assert gradient.abs().max() > 1e38


@pytest.mark.parametrize("extreme", [1e-300, 1e150, 9e299])
def test_extreme_logits_are_finite(extreme: float) -> None:
    logits = extreme * torch.tensor([1.0, -1.0, 0.5, 0.5, 0.0], dtype=torch.float64)
    for temperature in (1e300, 1.0, 1e-8, 1e-300):
        for k in (1, 3, 5):
            with np.errstate(over="ignore"):
                assert_sound(logits, k, temperature)


# Hard top-K


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.int32])
@pytest.mark.parametrize("k", [1, 4, 9])
def test_hard_gates_are_k_ones(k: int, dtype: torch.dtype) -> None:
    gates = hard_top_k(random(2, 5, 9, spread=10.0).to(dtype), k)
    assert gates.dtype == torch.float64
    assert gates.unique().tolist() == ([0.0, 1.0] if k < 9 else [1.0])
    assert (gates.sum(-1) == k).all()


def test_hard_gates_are_those_of_the_largest_logits() -> None:
    assert hard_top_k(torch.tensor([0.1, -3.0, 2.0, 0.2]), 2).tolist() == [0, 0, 1, 1]


def test_ties_go_to_the_first_heads() -> None:
    assert hard_top_k(torch.tensor([1.0, 2.0, 1.0, 1.0, 2.0]), 3).tolist() == [1, 1, 0, 0, 1]
    assert hard_top_k(torch.zeros(2000), 7).nonzero().flatten().tolist() == list(range(7))


# Noise


def test_noise_depends_on_seed_and_step_alone() -> None:
    before = torch.random.get_rng_state(), np.random.get_state()[1].tolist()
    noise = gumbel_noise((2, 5), seed=3, step=11)
    torch.rand(1)
    torch.random.set_rng_state(before[0])
    assert torch.equal(gumbel_noise((2, 5), seed=3, step=11), noise)
    assert torch.equal(torch.random.get_rng_state(), before[0])
    assert np.random.get_state()[1].tolist() == before[1]
    assert noise.dtype == torch.float64 and noise.shape == (2, 5)
    assert gumbel_noise(5, seed=3, step=11).shape == (5,)


def test_noise_differs_between_seeds_and_between_steps() -> None:
    pairs = [(seed, step) for seed in range(20) for step in range(20)]
    first = {float(gumbel_noise(1, seed, step)) for seed, step in pairs}
    assert len(first) == len(pairs)


def test_noise_is_standard_gumbel_within_a_step_and_across_steps() -> None:
    within = gumbel_noise(200_000, seed=0, step=0)
    across = torch.cat([gumbel_noise(4, seed=0, step=step) for step in range(5_000)])
    for noise in (within, across):
        error = math.pi / math.sqrt(6 * len(noise))
        assert abs(noise.mean() - 0.5772156649) < 4 * error
        assert abs(noise.var() - math.pi**2 / 6) < 0.05
        assert torch.isfinite(noise).all()


def test_perturbed_top_k_follows_eq_12() -> None:
    logits, draws = torch.tensor([0.7, -0.4, 0.0, 1.1], dtype=torch.float64), 40_000
    perturbed = logits + gumbel_noise((draws, 4), seed=1, step=0)
    chosen = perturbed.argsort(dim=-1, descending=True)[:, :2]
    assert torch.equal(
        torch.zeros(draws, 4).double().scatter(1, chosen, 1), hard_top_k(perturbed, 2)
    )
    importance = logits.exp()
    total, statistic = importance.sum(), torch.tensor(0.0, dtype=torch.float64)
    sequences = list(permutations(range(4), 2))
    for first, second in sequences:
        probability = importance[first] / total * importance[second] / (total - importance[first])
        seen = (chosen == torch.tensor([first, second])).all(dim=1).sum()
        statistic += (seen - draws * probability) ** 2 / (draws * probability)
    half_freedom = torch.tensor((len(sequences) - 1) / 2, dtype=torch.float64)
    assert torch.special.gammaincc(half_freedom, statistic / 2) > 0.01


# Bad input


@pytest.mark.parametrize("k", [0, -1, 6, 2.0, None, "2"])
@pytest.mark.parametrize("function", [lambda x, k: soft_top_k(x, k, 1.0), hard_top_k])
def test_k_is_a_whole_number_of_heads(function: object, k: object) -> None:
    with pytest.raises(HeadcountError, match="of 5 heads; give a whole number from 1 to 5"):
        function(torch.zeros(5), k)  # type: ignore[operator]


@pytest.mark.parametrize("function", [lambda x, k: soft_top_k(x, k, 1.0), hard_top_k])
def test_logits_have_a_dimension(function: object) -> None:
    with pytest.raises(HeadcountError, match="of 0 heads"):
        function(torch.tensor(1.0), 1)  # type: ignore[operator]


@pytest.mark.parametrize("temperature", [0.0, -1.0, math.inf, math.nan])
def test_temperature_is_positive_and_finite(temperature: float) -> None:
    with pytest.raises(HeadcountError, match="expected a finite number above 0"):
        soft_top_k(torch.zeros(5), 2, temperature)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_logits_are_finite(bad: float) -> None:
    logits = torch.tensor([0.0, bad, 1.0])
    with pytest.raises(HeadcountError, match="expected finite numbers"):
        soft_top_k(logits, 2, 1.0)
    if math.isnan(bad):
        with pytest.raises(HeadcountError, match="can be ranked"):
            hard_top_k(logits, 2)


@pytest.mark.parametrize("shape", [(1,), (4,), (3, 5), ()])
def test_noise_has_a_number_per_head(shape: tuple[int, ...]) -> None:
    with pytest.raises(HeadcountError, match="draw one number per head"):
        soft_top_k(torch.zeros(2, 5), 2, 1.0, torch.zeros(shape))


def test_seed_and_step_count_from_zero() -> None:
    with pytest.raises(HeadcountError, match="expected numbers from 0"):
        gumbel_noise(3, seed=0, step=-1)


def test_second_derivatives_are_refused_and_not_silently_missing() -> None:
    w = torch.randn(6, dtype=torch.float64, requires_grad=True)
    (first,) = torch.autograd.grad(soft_top_k(w, 2, 1.0).square().sum(), w, create_graph=True)
    with pytest.raises(HeadcountError, match="soft_top_k has first derivatives only"):
        torch.autograd.grad(first.sum(), w)
    # Who differentiates something else twice is not disturbed.
    x = torch.tensor(2.0, requires_grad=True, dtype=torch.float64)
    loss = soft_top_k(w, 2, 1.0)[0] + x**3
    first_w, first_x = torch.autograd.grad(loss, (w, x), create_graph=True)
    assert torch.autograd.grad(first_x, x)[0] == 12.0
    assert first_w.isfinite().all()


@pytest.mark.parametrize("function", [hard_top_k, lambda w, k: soft_top_k(w, k, 1.0)])
def test_complex_logits_are_refused(function: Any) -> None:
    with pytest.raises(HeadcountError, match="expected real numbers"):
        function(torch.zeros(4, dtype=torch.complex64), 2)


@pytest.mark.parametrize("size", [1e308, -1e308, 1.7e308])
def test_logits_that_overflow_are_refused(size: float) -> None:
    with pytest.raises(HeadcountError, match="where differences overflow"):
        soft_top_k(torch.tensor([size, -size, 0.0], dtype=torch.float64), 2, 1.0)
    assert soft_top_k(torch.tensor([1e299, 0.0], dtype=torch.float64), 1, 1.0).tolist() == [1, 0]
