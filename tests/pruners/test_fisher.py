"""Fisher searches by the information of gates, swaps heads within layers, and tunes gates."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest
import torch
from torch import Tensor

import headcount as hc
from headcount.pruners.fisher import fisher_information, rearranged
from headcount.surgery.outputs import outputs_of
from headcount.surgery.paused import added_to_input, look_round
from tests.pruners.rivals import HEAD, one_by_one, projections_of, tokens, uneven
from tests.tiny import Family, build, families, family_named, run


def transcribed(model: Any, batches: Any) -> dict[str, Tensor]:
    """Gate by gate with plain autograd, one example at a time."""
    heads = hc.find_heads(model)
    found = {b.name: torch.zeros(b.num_heads, b.num_heads).double() for b in heads.blocks}
    examples = one_by_one(batches)
    for example in examples:
        gates = torch.ones(len(heads), requires_grad=True)
        with hc.masked(model, gates):
            (gradient,) = torch.autograd.grad(model(**example).loss, [gates])
        start = 0
        for block in heads.blocks:
            own = gradient[start : start + block.num_heads].double()
            found[block.name] += own[:, None] * own[None, :] / len(examples)
            start += block.num_heads
    return found


@families("bert", "llama", "t5")
def test_the_information_is_the_mean_over_examples(family: Family) -> None:
    model, batches = build(family), uneven(family)
    found, expected = fisher_information(model, batches), transcribed(model, batches)
    for name, matrix in expected.items():
        assert torch.allclose(found[name], matrix, rtol=1e-3, atol=1e-5 * float(matrix.max()))


def lost(fisher: Tensor, kept: Tensor) -> float:
    gone = (~kept).double()
    return float(gone @ fisher @ gone)


def test_swaps_end_where_none_lowers_the_loss_of_a_layer() -> None:
    generator = torch.Generator().manual_seed(0)
    better = 0
    for _ in range(20):
        rows = torch.randn(5, 8, generator=generator).double()
        fisher = rows.T @ rows
        start = torch.zeros(8, dtype=torch.bool)
        start[fisher.diagonal().topk(4).indices] = True
        end = rearranged(start, fisher)
        assert int(end.sum()) == 4
        assert lost(fisher, end) <= lost(fisher, start)
        better += lost(fisher, end) < lost(fisher, start)
        for leaves in end.nonzero()[:, 0].tolist():
            for returns in (~end).nonzero()[:, 0].tolist():
                other = end.clone()
                other[leaves], other[returns] = False, True
                assert lost(fisher, end) <= lost(fisher, other) * (1 + 1e-9)
    assert better > 5


@pytest.mark.parametrize("keep", [4, 6, 8])
@pytest.mark.parametrize("name", ["bert", "llama"])
def test_layers_keep_as_many_as_the_search_gave_them(name: str, keep: int) -> None:
    model, batches = build(name), uneven(family_named(name))
    information = transcribed(model, batches)
    diagonal = torch.cat([matrix.diagonal() for matrix in information.values()])
    best = set(diagonal.topk(keep).indices.tolist())
    heads = hc.find_heads(model)
    mask = hc.Fisher(keep).fit(model, batches)
    for block in heads.blocks:
        searched = [index in best for index in block.indices]
        kept = torch.tensor([index in mask.kept for index in block.indices])
        assert int(kept.sum()) == sum(searched)
        matrix = information[block.name]
        assert lost(matrix, kept) <= lost(matrix, torch.tensor(searched)) * (1 + 1e-4)
        for chosen in combinations(range(4), sum(searched)):
            other = torch.tensor([i in chosen for i in range(4)])
            if int((other != kept).sum()) == 2:  # one swap away
                assert lost(matrix, kept) <= lost(matrix, other) * (1 + 1e-4)


def test_a_group_has_one_gate() -> None:
    model, batches = build("llama"), uneven(family_named("llama"))
    pruner = hc.Fisher(4, unit="group")
    pruner.bind(hc.find_heads(model))
    layers = pruner.measured(model, batches)
    for found, matrix in zip(layers, transcribed(model, batches).values(), strict=True):
        expected = torch.stack([
            torch.stack([matrix[r : r + 2, c : c + 2].sum() for c in (0, 2)]) for r in (0, 2)
        ])  # fmt: skip
        assert torch.allclose(found, expected, rtol=1e-3, atol=1e-5 * float(expected.max()))


LAYERS = {"bert": "bert.encoder.layer", "llama": "model.layers"}


def residual_and_parts(name: str, model: Any, layer: int, batches: Any) -> tuple[Tensor, Tensor]:
    """What a layer is given, and what each head adds to it: a row per token."""
    home = model.get_submodule(LAYERS[name])[layer]
    (projection,) = projections_of(name, model)[layer : layer + 1]
    inputs, given = tokens(model, [projection, home], batches)
    weight = projection.weight.detach().double()
    parts = inputs.unflatten(1, (-1, HEAD)).transpose(0, 1) @ weight.T.unflatten(0, (-1, HEAD))
    return given.detach(), parts.detach()


def damped_gates(parts: Tensor, missing: Tensor) -> Tensor:
    """The damped problem as a plain one with a row more for each gate, around gates of 1."""
    columns = parts.flatten(1).T
    rows = torch.cat([columns, torch.eye(len(parts)).double()])
    wanted = torch.cat([missing.flatten(), torch.zeros(len(parts)).double()])
    return 1 + torch.linalg.lstsq(rows, wanted[:, None]).solution[:, 0]


@pytest.mark.parametrize("name", ["bert", "llama"])
def test_tuned_gates_are_the_damped_least_squares(name: str) -> None:
    """Of the sums of output and residual, layer by layer, each with those before it tuned."""
    whole, other, model = (build(name).double() for _ in range(3))
    batches = uneven(family_named(name))
    heads = hc.find_heads(model)
    mask = hc.HeadMask.all(heads) - hc.HeadMask.from_indices(heads, [1, 6, 7, 8])
    before = {name: p.clone() for name, p in model.named_parameters()}
    hc.Fisher(8).make_up(model, mask, batches)
    projections = zip(projections_of(name, other), projections_of(name, model), strict=True)
    for layer, (expected, found) in enumerate(projections):
        kept = list(mask.by_block()[heads.blocks[layer].name])
        wanted_given, wanted_parts = residual_and_parts(name, whole, layer, batches)
        given, parts = residual_and_parts(name, other, layer, batches)
        missing = wanted_given + wanted_parts.sum(0) - given - parts[kept].sum(0)
        gates = torch.zeros(len(parts)).double()
        gates[kept] = damped_gates(parts[kept], missing)
        with torch.no_grad():
            expected.weight.mul_(gates.repeat_interleave(HEAD))
        own = gates.repeat_interleave(HEAD) != 0
        assert torch.allclose(found.weight[:, own], expected.weight[:, own], rtol=1e-6)
    changed = {name for name, p in model.named_parameters() if not p.equal(before[name])}
    assert {name.rpartition(".")[2] for name in changed} == {"weight"}
    assert len(changed) == len(heads.blocks)


@pytest.mark.parametrize(
    ("name", "where"),
    [
        ("bert", {"encoder"}),
        ("gpt2", {"decoder"}),
        ("llama", {"decoder"}),
        ("t5", {"encoder", "decoder", "cross"}),
        ("bart", {"encoder", "decoder"}),  # cross-attention comes after a sum and its norm
        ("gpt-neox", set()),  # attention and MLP are parallel
    ],
)
def test_residuals_are_those_that_the_model_shows(name: str, where: set[str]) -> None:
    family = family_named(name)
    model, batch = build(family), uneven(family)[0]
    heads = hc.find_heads(model)
    outputs = outputs_of(model, heads, hc.HeadMask.all(heads))
    with torch.no_grad():
        _, layers, _ = look_round(model, outputs, batch)
        found = added_to_input(model, outputs, layers, batch)
    assert found == {output.name for output in outputs if output.block.kind in where}
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_what_is_tuned_is_what_the_cut_model_gives() -> None:
    family = family_named("llama")
    model, batches = build(family), uneven(family)
    whole = run(model, batches[0])["logits"]
    pruner = hc.Fisher(6)
    mask = pruner.fit(model, batches)
    with hc.masked(model, mask):
        plain = run(model, batches[0])["logits"]
    pruner.make_up(model, mask, batches)
    with hc.masked(model, mask):
        tuned = run(model, batches[0])["logits"]
    hc.remove_heads(model, mask)
    assert torch.allclose(run(model, batches[0])["logits"], tuned, atol=1e-5)
    assert not torch.allclose(tuned, plain, atol=1e-4)
    assert tuned.shape == whole.shape


def test_gates_that_nobody_believes_end_the_tuning(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first layer beyond the range stays as it was, and so do all after it."""
    model, batches = build("bert"), uneven(family_named("bert"))
    pruner, heads = hc.Fisher(6), hc.find_heads(model)
    mask = hc.HeadMask.all(heads) - hc.HeadMask.from_indices(heads, [1, 4, 5, 7])
    plain = [p.weight.detach().clone() for p in projections_of("bert", model)]
    tuned = build("bert")
    pruner.make_up(tuned, mask, batches)
    changed = [p.weight.detach() for p in projections_of("bert", tuned)]
    gates = [float((new / old).abs().max()) for new, old in zip(changed, plain, strict=True)]
    order = sorted(range(len(gates)), key=gates.__getitem__)
    limit = (gates[order[-1]] + gates[order[-2]]) / 2
    monkeypatch.setattr("headcount.pruners.fisher.LARGEST_GATE", limit)
    pruner.make_up(model, mask, batches)
    for place, weight in enumerate(p.weight for p in projections_of("bert", model)):
        expected = changed[place] if place < order[-1] else plain[place]
        assert torch.allclose(weight, expected, atol=1e-6)
    assert order[-1] > 0


def test_without_tuning_all_output_weights_are_fitted() -> None:
    batches = uneven(family_named("bert"))
    fitted, expected = build("bert"), build("bert")
    pruner = hc.Fisher(6, tune=False)
    mask = pruner.fit(fitted, batches)
    pruner.make_up(fitted, mask, batches)
    hc.compensate(expected, mask, batches)
    others = expected.state_dict()
    assert all(p.equal(others[name]) for name, p in fitted.state_dict().items())


def test_frozen_weights_stay() -> None:
    model, batches = build("bert"), uneven(family_named("bert"))
    name = "bert.encoder.layer.0.attention.output.dense.weight"
    before = model.get_parameter(name).clone()
    pruner = hc.Fisher(6)
    pruner.make_up(model, pruner.fit(model, batches), batches, frozen={name})
    assert model.get_parameter(name).equal(before)
