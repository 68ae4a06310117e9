"""OSSCAR keeps the heads that reconstruct their layers best."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest
import torch
from torch import Tensor

import headcount as hc
from headcount import HeadcountError
from headcount.pruners.osscar import Layer, locally_best, objective
from tests.pruners.rivals import HEAD, projections_of, tokens, uneven
from tests.tiny import build, family_named, run

RIDGE = 1e-3


def columns(gone: Any, size: int = HEAD) -> list[int]:
    return [column for head in gone for column in range(head * size, (head + 1) * size)]


def fitted(inputs: Tensor, weight: Tensor, gone: list[int]) -> tuple[Tensor, float]:
    """The weights of the best fit without these inputs, and its error: a plain least squares.

    The ridge holds the weights near the old ones, by a row more for each input.
    """
    unit = float(inputs.square().sum(0).mean())
    stays = [column for column in range(inputs.shape[1]) if column not in gone]
    rows = torch.cat([inputs, (RIDGE * unit) ** 0.5 * torch.eye(inputs.shape[1]).double()])
    wanted = rows @ weight.T
    found = torch.linalg.lstsq(rows[:, stays], wanted).solution
    return found.T, float((wanted - rows[:, stays] @ found).square().sum())


def in_turn(inputs: Tensor, weight: Tensor, size: int) -> list[float]:
    """The relative rise with each unit, when the one that raises the error least goes first."""
    number, whole = inputs.shape[1] // size, float((inputs @ weight.T).square().sum())
    gone: list[int] = []
    before, highest, rises = 0.0, 0.0, [0.0] * number
    while len(gone) < number:
        errors = {
            unit: fitted(inputs, weight, columns([*gone, unit], size))[1]
            for unit in range(number)
            if unit not in gone
        }
        unit = min(errors, key=errors.__getitem__)
        highest = max(highest, (errors[unit] - before) / whole)
        rises[unit], before = highest, errors[unit]
        gone.append(unit)
    return rises


@pytest.mark.parametrize(("name", "heads"), [("bert", 1), ("llama", 1), ("llama", 2)])
def test_heads_go_in_turn_by_the_relative_rise(name: str, heads: int) -> None:
    model, batches = build(name), uneven(family_named(name), batches=6)
    projections = projections_of(name, model)
    inputs = tokens(model, projections, batches)
    pruner = hc.Osscar(6, ridge=RIDGE, unit="group" if heads == 2 else "head")
    pruner.bind(hc.find_heads(model))
    layers = pruner.measured(model, batches)
    found = [rise for layer in layers for rise in pruner.worth_in(layer).tolist()]
    expected = [
        rise
        for values, projection in zip(inputs, projections, strict=True)
        for rise in in_turn(values, projection.weight.detach().double(), heads * HEAD)
    ]
    assert found == pytest.approx(expected, rel=1e-3)


def random_layer(seed: int) -> tuple[Layer, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    mixing = torch.randn(12, 12, generator=generator).double()
    inputs = torch.randn(50, 12, generator=generator).double() @ mixing
    weight = torch.randn(5, 12, generator=generator).double()
    damped = inputs.T @ inputs
    damped = damped + RIDGE * damped.diagonal().mean() * torch.eye(12).double()
    felt = weight.T @ weight
    layer = Layer(felt, torch.linalg.inv(damped), 2, float((inputs @ weight.T).square().sum()))
    return layer, inputs, weight


def test_the_objective_is_the_error_of_the_best_fit() -> None:
    layer, inputs, weight = random_layer(0)
    for gone in ([1], [0, 4], [1, 2, 5], list(range(6))):
        _, error = fitted(inputs, weight, columns(gone, 2))
        assert objective(layer, gone) == pytest.approx(error, rel=1e-6)


def test_swaps_end_where_none_lowers_the_objective() -> None:
    better = 0
    for seed in range(10):
        layer, *_ = random_layer(seed)
        values = {gone: objective(layer, gone) for gone in combinations(range(6), 3)}
        for start in ((0, 1, 2), (3, 4, 5)):
            kept = torch.tensor([unit not in start for unit in range(6)])
            end = tuple((~locally_best(kept, layer)).nonzero()[:, 0].tolist())
            beside = [v for gone, v in values.items() if len({*gone} & {*end}) == 2]
            assert values[end] <= min(beside) * (1 + 1e-6)
            assert values[end] <= values[start] * (1 + 1e-9)
            better += values[end] < values[start]
    assert better > 10


def test_the_choice_is_a_local_optimum_with_the_counts_of_the_turns() -> None:
    model, batches = build("bert"), uneven(family_named("bert"))
    pruner = hc.Osscar(6)
    mask = pruner.fit(model, batches)
    first = hc.Osscar(6)
    first.bind(hc.find_heads(model))
    layers = first.measured(model, batches)
    rises = torch.cat([first.worth_in(layer) for layer in layers])
    best = set(rises.topk(6).indices.tolist())
    for block, layer in zip(pruner.bound().blocks, layers, strict=True):
        gone = [place for place, index in enumerate(block.indices) if index not in mask.kept]
        assert block.num_heads - len(gone) == len(best & set(block.indices))
        for others in combinations(range(4), len(gone)):
            if len({*others} & {*gone}) == len(gone) - 1:
                assert objective(layer, gone) <= objective(layer, others) * (1 + 1e-6)


def test_the_weights_are_those_of_the_fit() -> None:
    model: Any = build("bert")
    batches = uneven(family_named("bert"), batches=6)
    heads = hc.find_heads(model)
    mask = hc.HeadMask.all(heads) - hc.HeadMask.from_indices(heads, [1, 4, 6, 8, 9, 10, 11])
    projections = projections_of("bert", model)
    inputs = tokens(model, projections, batches)
    old = [projection.weight.detach().double().clone() for projection in projections]
    before = {name: p.clone() for name, p in model.named_parameters()}
    hc.Osscar(5, ridge=RIDGE).make_up(model, mask, batches)
    for place, gone in enumerate(([1], [0, 2])):
        expected, _ = fitted(inputs[place], old[place], columns(gone))
        stays = [column for column in range(32) if column not in columns(gone)]
        found = projections[place].weight.detach().double()[:, stays]
        assert torch.allclose(found, expected, atol=1e-4)
    changed = {name for name, p in model.named_parameters() if not p.equal(before[name])}
    # The last layer loses all heads: there is nothing to fit.
    assert changed == {f"bert.encoder.layer.{n}.attention.output.dense.weight" for n in (0, 1)}
    with hc.masked(model, mask):
        masked = run(model, batches[0])["logits"]
    hc.remove_heads(model, mask)
    assert torch.allclose(run(model, batches[0])["logits"], masked, atol=1e-5)


def test_frozen_weights_stay_and_a_ridge_is_needed() -> None:
    model, batches = build("llama"), uneven(family_named("llama"))
    name = "model.layers.0.self_attn.o_proj.weight"
    before = model.get_parameter(name).clone()
    pruner = hc.Osscar(3, even=True)
    pruner.make_up(model, pruner.fit(model, batches), batches, frozen={name})
    assert model.get_parameter(name).equal(before)
    with pytest.raises(HeadcountError, match=r"ridge of osscar is 0\.0, expected a number above 0"):
        hc.Osscar(3, ridge=0)
