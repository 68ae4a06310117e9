"""FLAP keeps what fluctuates, and moves the mean of the rest into biases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import headcount as hc
from headcount import HeadcountError
from tests.pruners.rivals import HEAD, by_head, projections_of, tokens, uneven
from tests.pruners.test_units import Data
from tests.tiny import build, family_named, run


def transcribed(
    name: str, model: Any, batches: Any, heads: int = 1, squared: bool = False
) -> Tensor:
    """The mean over a head's inputs of the z-score of Var(x_j) · ‖W_j‖² within each layer."""
    found = []
    projections = projections_of(name, model)
    for projection, inputs in zip(projections, tokens(model, projections, batches), strict=True):
        norms = projection.weight.detach().double().norm(dim=0) ** 2
        metric = (inputs.var(dim=0) * norms) ** (2 if squared else 1)
        scores = by_head((metric - metric.mean()) / metric.std()).mean(1)
        found.append(scores.unflatten(0, (-1, heads)).mean(1))
    return torch.cat(found)


@pytest.mark.parametrize("squared", [False, True])
@pytest.mark.parametrize("name", ["bert", "llama"])
def test_the_scores_are_those_of_the_formula(name: str, squared: bool) -> None:
    model, batches = build(name), uneven(family_named(name))
    pruner = hc.Flap(5, squared=squared)
    mask = pruner.fit(model, batches)
    expected = transcribed(name, model, batches, squared=squared)
    assert torch.allclose(pruner.importance(), expected, rtol=1e-4, atol=1e-5)
    assert mask.kept == set(expected.topk(5).indices.tolist())


def test_groups_are_compared_with_groups() -> None:
    model, batches = build("llama"), uneven(family_named("llama"))
    pruner = hc.Flap(4, unit="group")
    pruner.fit(model, batches)
    found = pruner.importance().unflatten(0, (-1, 2)).sum(1)
    expected = transcribed("llama", model, batches, heads=2)
    assert torch.allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_a_head_without_rivals_in_its_layer_is_neither_good_nor_bad() -> None:
    family = family_named("bert")
    model, batches = build(family), uneven(family)
    heads = hc.find_heads(model)
    hc.remove_heads(model, hc.HeadMask.all(heads) - hc.HeadMask.from_indices(heads, [0, 1, 2]))
    pruner = hc.Flap(5)
    pruner.fit(model, batches)
    assert float(pruner.importance()[0]) == pytest.approx(0, abs=1e-12)


def test_the_bias_gets_the_mean_of_what_goes() -> None:
    model: Any = build("bert")
    batches = uneven(family_named("bert"))
    heads = hc.find_heads(model)
    # A head of the first layer, all of the second.
    mask = hc.HeadMask.all(heads) - hc.HeadMask.from_indices(heads, [1, 4, 5, 6, 7])
    projections = projections_of("bert", model)
    means = [inputs.mean(0) for inputs in tokens(model, projections, batches)]
    expected = []
    for dense, mean, gone in zip(projections, means, ([1], [0, 1, 2, 3], []), strict=True):
        bias = dense.bias.detach().double().clone()
        for head in gone:
            own = slice(head * HEAD, (head + 1) * HEAD)
            bias += dense.weight.detach().double()[:, own] @ mean[own]
        expected.append(bias)
    before = {name: p.clone() for name, p in model.named_parameters()}
    hc.Flap(7).make_up(model, mask, batches)
    for dense, bias in zip(projections, expected, strict=True):
        assert torch.allclose(dense.bias.double(), bias, atol=1e-5)
    changed = {name for name, p in model.named_parameters() if not p.equal(before[name])}
    assert changed == {f"bert.encoder.layer.{n}.attention.output.dense.bias" for n in (0, 1)}
    with hc.masked(model, mask):
        masked = run(model, batches[0])["logits"]
    hc.remove_heads(model, mask)
    assert torch.allclose(run(model, batches[0])["logits"], masked, atol=1e-5)


def test_a_frozen_bias_stays() -> None:
    model, batches = build("bert"), uneven(family_named("bert"))
    name = "bert.encoder.layer.0.attention.output.dense.bias"
    before = model.get_parameter(name).clone()
    hc.Flap(1).make_up(model, hc.HeadMask.none(hc.find_heads(model)), batches, frozen={name})
    assert model.get_parameter(name).equal(before)


def test_a_model_without_biases_gets_some(tmp_path: Path) -> None:
    model, batches = build("llama"), uneven(family_named("llama"))
    whole = run(model, batches[0])["logits"]
    pruner = hc.Flap(5)
    mask = pruner.fit(model, batches)
    pruner.refuse(model)
    assert not model.config.attention_bias
    pruner.make_up(model, hc.HeadMask.all(hc.find_heads(model)), batches)
    assert not model.config.attention_bias  # nothing goes, so nothing is needed
    pruner.make_up(model, mask, batches)
    assert model.config.attention_bias
    attention = model.model.layers[0].self_attn
    assert not attention.q_proj.bias.any() and attention.o_proj.bias.any()
    with hc.masked(model, mask):
        masked = run(model, batches[0])["logits"]
    assert not torch.allclose(masked, whole, atol=1e-4)
    hc.remove_heads(model, mask)
    assert torch.allclose(run(model, batches[0])["logits"], masked, atol=1e-5)
    model.save_pretrained(tmp_path)
    again = type(model).from_pretrained(tmp_path).eval()
    assert torch.allclose(run(again, batches[0])["logits"], masked, atol=1e-5)


def test_a_model_that_cannot_be_made_up_for_stays_as_it_is() -> None:
    model, batches = build("llama"), uneven(family_named("llama"))
    names = {name for name, _ in model.named_parameters()}
    mask = hc.Flap(5).fit(model, batches)
    with pytest.raises(HeadcountError, match="no data to fit"):
        hc.Flap(5).make_up(model, mask, [])
    assert not model.config.attention_bias
    assert {name for name, _ in model.named_parameters()} == names
    hc.Flap(5).make_up(model, mask, batches, frozen=names)
    assert not any(p.any() for name, p in model.named_parameters() if name not in names)


def test_a_class_without_a_switch_is_refused_and_unchanged() -> None:
    model, batches = build("mistral"), uneven(family_named("mistral"))
    before = {name: p.clone() for name, p in model.named_parameters()}
    said = (
        r"bias of model.layers.0.self_attn.o_proj, which has none, and MistralForCausalLM has "
        r"no attention_bias that gives it one; give compensate: false"
    )
    with pytest.raises(HeadcountError, match=said):
        hc.Flap(5).refuse(model)
    pruner = hc.Flap(5)
    with pytest.raises(HeadcountError, match=said):
        pruner.make_up(model, pruner.fit(model, batches), batches)
    assert {name for name, _ in model.named_parameters()} == set(before)
    assert all(p.equal(before[name]) for name, p in model.named_parameters())
    plain = hc.Flap(5, compensate=False)
    plain.refuse(model)
    plain.score(model, Data(model, list(batches)))
    assert len(plain.mask()) == 5
