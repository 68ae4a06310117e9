"""The surgeon cuts what the heads that stay can make up for."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import headcount as hc
from headcount import HeadcountError
from headcount.heads.mask import HeadMask
from headcount.pruners.curvature import Curvature, curvatures
from headcount.surgery.outputs import Output, outputs_of
from tests.tiny import VOCABULARY, Family, Inputs, build, families, family_named, run

HEAD = 8  # the size of a head of the tiny models


def labelled(family: Family, batches: int = 3) -> list[Inputs]:
    """Batches with labels, each of other tokens."""
    generator = torch.Generator().manual_seed(3)
    made = []
    for _ in range(batches):
        inputs = {
            name: t
            if name == "attention_mask"
            else torch.randint(5, VOCABULARY, t.shape, generator=generator)
            for name, t in family.inputs().items()
        }
        if "decoder_input_ids" in inputs:
            inputs["labels"] = inputs.pop("decoder_input_ids")
        else:
            inputs["labels"] = inputs["input_ids"]
        made.append(inputs)
    return made


def output_of(model: Any, block: int = 0) -> Output:
    heads = hc.find_heads(model)
    return outputs_of(model, heads, HeadMask.all(heads))[block]


def rows(generator: torch.Generator, mixing: Tensor, number: int = 500) -> Tensor:
    drawn = torch.randn(number, len(mixing), generator=generator, dtype=torch.float64)
    return drawn @ mixing + 0.3


def best_fit(curvature: Curvature, gone: int, weight: Tensor, ridge: float) -> float:
    """What losing a head costs if the others are fitted, by minimising over all changes."""
    inputs, gradients = curvature.inputs, curvature.gradients
    unit = inputs.diagonal()[:-1].mean()
    damped = inputs + ridge * unit * torch.eye(len(inputs), dtype=inputs.dtype)
    columns = torch.arange(len(inputs))
    own = (columns >= gone * HEAD) & (columns < (gone + 1) * HEAD)
    change = torch.zeros(len(weight), len(inputs), dtype=inputs.dtype)
    change[:, own] = -weight[:, own[:-1]]
    # The gradient of ½ tr(C A Cᵀ G) with respect to the free columns is zero at the best.
    change[:, ~own] = -torch.linalg.solve(
        damped[~own][:, ~own], damped[~own][:, own] @ change[:, own].T
    ).T
    return float(0.5 * (change @ damped @ change.T @ gradients).trace())


def test_the_first_head_to_go_costs_what_the_best_fit_leaves() -> None:
    output = output_of(build("bert"))
    generator = torch.Generator().manual_seed(0)
    width = len(output.kept)
    curvature = Curvature(output)
    mixing = torch.randn(width, width, generator=generator, dtype=torch.float64)
    curvature.add_inputs(rows(generator, mixing))
    curvature.add_gradients(rows(generator, mixing / 50))
    curvature.examples = 20
    weight = output.weight().double()
    expected = [best_fit(curvature, gone, weight, 1e-3) for gone in range(width // HEAD)]
    costs = curvature.removal_costs(HEAD, 1e-3)
    assert float(costs.min()) == pytest.approx(min(expected), rel=1e-6)
    assert int(costs.argmin()) == min(range(len(expected)), key=expected.__getitem__)


def test_losing_all_heads_costs_no_less_than_losing_one() -> None:
    model = build("bert")
    found = hc.Surgeon(2)
    found.fit(model, labelled(family_named("bert")))
    assert (found.importance() > 0).all()
    assert len(found.importance().unique()) == len(found.importance())


def test_of_two_heads_that_say_the_same_one_goes_first() -> None:
    """Both matter to the loss as the model stands; either can stand in for the other."""
    family = family_named("bert")
    model = build("bert")
    attention: Any = model.bert.encoder.layer[1].attention.self
    with torch.no_grad():
        for projection in (attention.query, attention.key, attention.value):
            projection.weight[HEAD : 2 * HEAD] = projection.weight[:HEAD]
            projection.bias[HEAD : 2 * HEAD] = projection.bias[:HEAD]
        dense = model.bert.encoder.layer[1].attention.output.dense
        dense.weight[:, : 2 * HEAD] *= 5
    batches = labelled(family)
    heads = hc.find_heads(model)
    surgeon = hc.Surgeon(len(heads) - 1, ridge=1e-6)
    mask = surgeon.fit(model, batches)
    gone = set((~mask).names)
    assert gone <= {"encoder.1.0", "encoder.1.1"}
    michel = hc.Michel(len(heads) - 1)
    assert not set((~michel.fit(model, batches)).names) & {"encoder.1.0", "encoder.1.1"}
    whole = run(model, batches[0])["logits"]
    hc.compensate(model, mask, batches, ridge=1e-9)
    hc.remove_heads(model, mask)
    assert float((run(model, batches[0])["logits"] - whole).abs().max()) < 1e-3


@families("bert", "gpt2", "llama", "t5", "bart", "albert")
def test_exactly_k_heads_of_every_family(family: Family) -> None:
    model = build(family)
    before = {name: p.clone() for name, p in model.named_parameters()}
    batches = labelled(family)
    number = len(hc.find_heads(model))
    for keep in (1, number // 2, number - 1):
        mask = hc.Surgeon(keep).fit(model, batches)
        assert len(mask) == keep
    assert all(p.equal(before[name]) for name, p in model.named_parameters())
    assert all(p.grad is None and p.requires_grad for p in model.parameters())


@families("bert", "llama", "bart", "albert")
def test_one_ranking_serves_every_k(family: Family) -> None:
    """It has, for each K, the heads that would be found alone."""
    model, batches = build(family), labelled(family)
    every = hc.Surgeon(None)
    every.fit(model, iter(batches))
    ranked = every.importance().argsort(descending=True).tolist()
    assert len(every.importance().unique()) == len(ranked)
    for keep in (1, 2, len(ranked) // 2, len(ranked) - 1):
        assert set(hc.Surgeon(keep).fit(model, batches).indices) == set(ranked[:keep])


def test_the_layer_whose_loss_is_measured_to_be_least_loses_a_head() -> None:
    """The quadratic model sees nothing of what comes after the projection."""
    family = family_named("bert")
    model, batches = build("bert"), labelled(family)
    heads = hc.find_heads(model)
    mask = hc.Surgeon(len(heads) - 1, ridge=1e-3).fit(model, batches)
    told = {}
    for layer in (0, 1):
        own = hc.Surgeon(3, layers=[layer], ridge=1e-3, measured=False).fit(model, batches)
        fitted = build("bert")
        outputs = outputs_of(fitted, heads, own)
        found = curvatures(fitted, outputs_of(fitted, heads, HeadMask.all(heads)), batches)
        for output, curvature in zip(outputs, found, strict=True):
            weight, bias = curvature.fitted(output.kept, 1e-3)
            with torch.no_grad():
                output.projection.weight.copy_(weight)
                output.projection.bias.copy_(bias)
        told[own] = sum(divergence(model, fitted, batch) for batch in batches)
    assert mask == min(told, key=told.__getitem__)


def divergence(model: Any, other: Any, batch: Inputs) -> float:
    """How far the answers of another model are from a model's, at the places that count."""
    own, changed = (torch.from_numpy(run(m, batch)["logits"].numpy()) for m in (model, other))
    own, changed = own.double().log_softmax(-1), changed.double().log_softmax(-1)
    rows = (own.exp() * (own - changed)).sum(-1)
    return float(rows[batch["attention_mask"].bool()].sum())


def test_the_data_is_gone_through_once() -> None:
    model, batches = build("bert"), labelled(family_named("bert"))
    given = iter(batches)
    hc.Surgeon(1).fit(model, given)
    assert not list(given)


def test_only_heads_in_scope_go() -> None:
    family = family_named("bart")
    model = build("bart")
    surgeon = hc.Surgeon(2, kinds=["cross"], min_per_block=1)
    mask = surgeon.fit(model, labelled(family))
    kept = mask.by_block()
    for block in hc.find_heads(model).blocks:
        if block.kind == "cross":
            assert len(kept[block.name]) == 1
        else:
            assert len(kept[block.name]) == block.num_heads


def test_a_block_that_is_never_called_is_of_no_use() -> None:
    family = family_named("bart")
    model = build("bart")
    heads = hc.find_heads(model)
    outputs = outputs_of(model, heads, HeadMask.all(heads))
    unused = Curvature(outputs[0])
    assert not unused.removal_costs(HEAD, 1e-3).any()
    assert all(c.places for c in curvatures(model, outputs, labelled(family)))


def test_bad_input_is_told() -> None:
    model = build("bert")
    with pytest.raises(HeadcountError, match=r"ridge of surgeon is 0\.0, expected a number"):
        hc.Surgeon(2, ridge=0)
    with pytest.raises(HeadcountError, match="no data to score"):
        hc.Surgeon(2).fit(model, [])
    unused = hc.Surgeon(2)
    unused.bind(hc.find_heads(model))
    with pytest.raises(
        HeadcountError, match=r"surgeon has scored no model yet; call fit\(model, b"
    ):
        unused.mask()
