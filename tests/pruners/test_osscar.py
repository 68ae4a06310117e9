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
    found = [rise for layer in pruner.rises(model, batches) for rise in layer.tolist()]
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


def chosen(inputs: Tensor, weight: Tensor, keep: int, size: int) -> list[int]:
    """The units that go: in turn at first, then by the best swap for as long as one helps."""
    number, gone = inputs.shape[1] // size, list[int]()

    def error(units: Any) -> float:
        return fitted(inputs, weight, columns(units, size))[1]

    while len(gone) < number - keep:
        gone.append(min(set(range(number)) - {*gone}, key=lambda unit: error([*gone, unit])))
    while True:
        stays = set(range(number)) - {*gone}
        swaps = [sorted({*gone, leaves} - {back}) for leaves in stays for back in gone]
        swap = min(swaps, key=error, default=gone)
        if error(swap) >= error(gone) * (1 - 1e-9):
            return sorted(gone)
        gone = swap


def in_order(
    projections: list[Any], model: Any, batches: Any, keep: list[int], size: int = HEAD
) -> list[list[int]]:
    """The units that go from each layer, each with the layers before pruned and refitted."""
    gone = []
    for projection, number in zip(projections, keep, strict=True):
        (inputs,) = tokens(model, [projection], batches)
        weight = projection.weight.detach().double()
        gone.append(chosen(inputs, weight, number, size))
        found, _ = fitted(inputs, weight, columns(gone[-1], size))
        stays = [c for c in range(weight.shape[1]) if c not in columns(gone[-1], size)]
        with torch.no_grad():
            projection.weight.zero_()
            projection.weight[:, stays] = found.to(projection.weight)
    return gone


@pytest.mark.parametrize("even", [False, True])
@pytest.mark.parametrize(("name", "heads"), [("bert", 1), ("llama", 1), ("llama", 2)])
def test_layers_are_pruned_one_after_another(name: str, heads: int, even: bool) -> None:
    """Choice and weights are those of the paper, with K divided by the relative rises."""
    model, batches = build(name).double(), uneven(family_named(name), batches=6)
    keep, unit, size = 6, "group" if heads == 2 else "head", heads * HEAD
    pruner = hc.Osscar(keep, ridge=RIDGE, even=even, unit=unit)
    mask = pruner.fit(model, batches)
    projections = projections_of(name, model)
    rises = [
        rise
        for values, own in zip(tokens(model, projections, batches), projections, strict=True)
        for rise in in_turn(values, own.weight.detach(), size)
    ]
    per_layer = 4 // heads
    best = torch.tensor(rises).topk(keep // heads).indices // per_layer
    share = torch.bincount(best, minlength=len(projections)).tolist()
    other = build(name).double()
    counts = [keep // heads // len(projections)] * len(projections) if even else share
    expected = in_order(projections_of(name, other), other, batches, counts, size)
    for block, gone in zip(pruner.bound().blocks, expected, strict=True):
        left = [i for place, i in enumerate(block.indices) if place // heads not in gone]
        assert set(left) == mask.kept & set(block.indices)
    pruner.make_up(model, mask, batches)
    with hc.masked(model, mask):
        found = run(model, batches[0])["logits"]
    assert torch.allclose(found, run(other, batches[0])["logits"], atol=1e-7)
    hc.remove_heads(model, mask)
    assert torch.allclose(run(model, batches[0])["logits"], found, atol=1e-9)


def test_layers_that_keep_all_heads_and_those_that_keep_none_are_left_as_they_are() -> None:
    model: Any = build("bert")
    batches = uneven(family_named("bert"), batches=6)
    heads = hc.find_heads(model)
    mask = hc.HeadMask.all(heads) - hc.HeadMask.from_indices(heads, [5, 8, 9, 10, 11])
    before = {name: p.clone() for name, p in model.named_parameters()}
    hc.Osscar(7).make_up(model, mask, batches)
    changed = {name for name, p in model.named_parameters() if not p.equal(before[name])}
    assert changed == {"bert.encoder.layer.1.attention.output.dense.weight"}


def test_a_block_that_all_layers_share_is_chosen_for_all_of_them() -> None:
    model, batches = build("albert"), uneven(family_named("albert"))
    pruner = hc.Osscar(2)
    mask = pruner.fit(model, batches)
    pruner.make_up(model, mask, batches)
    with hc.masked(model, mask):
        masked = run(model, batches[0])["logits"]
    hc.remove_heads(model, mask)
    assert torch.allclose(run(model, batches[0])["logits"], masked, atol=1e-5)


def test_an_input_that_is_always_0_costs_nothing() -> None:
    """Large weights behind a head that says nothing must not keep it."""
    model: Any = build("bert")
    attention = model.bert.encoder.layer[0].attention
    with torch.no_grad():
        attention.self.value.weight[:HEAD].zero_()
        attention.self.value.bias[:HEAD].zero_()
        attention.output.dense.weight[:, :HEAD] = 1e6
    mask = hc.Osscar(11).fit(model, uneven(family_named("bert")))
    assert 0 not in mask.kept


def test_many_tokens_are_chosen_on_from_all_over_the_data(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, batches = build("bert"), uneven(family_named("bert"), batches=8)
    wanted = 2 * batches[0]["input_ids"].numel()
    monkeypatch.setattr("headcount.pruners.osscar.TOKENS", wanted)
    monkeypatch.setattr("headcount.pruners.osscar.ANSWERS", 1)
    pruner, seen = hc.Osscar(6), list[Any]()
    plain = pruner.chosen

    def note(model: Any, batches: Any) -> Any:
        seen.extend(batches)
        return plain(model, batches)

    monkeypatch.setattr(pruner, "chosen", note)
    assert len(pruner.fit(model, batches)) == 6
    assert [next(i for i, b in enumerate(batches) if b is one) for one in seen] == [2, 6]


def test_frozen_weights_stay_and_a_ridge_is_needed() -> None:
    model, batches = build("llama"), uneven(family_named("llama"))
    name = "model.layers.0.self_attn.o_proj.weight"
    before = model.get_parameter(name).clone()
    pruner = hc.Osscar(3, even=True)
    pruner.make_up(model, pruner.fit(model, batches), batches, frozen={name})
    assert model.get_parameter(name).equal(before)
    with pytest.raises(HeadcountError, match=r"ridge of osscar is 0\.0, expected a number above 0"):
        hc.Osscar(3, ridge=0)
