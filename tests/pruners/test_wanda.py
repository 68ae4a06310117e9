"""Wanda weighs each weight by the norm of its input."""

from __future__ import annotations

from typing import Any

import torch

import headcount as hc
from headcount.pruners.inputs import input_sums
from headcount.pruners.own_answers import own_answers
from tests.pruners.rivals import by_head, tokens, uneven
from tests.tiny import build, family_named


def transcribed(model: Any, projections: list[Any], batches: Any) -> torch.Tensor:
    """Entry by entry, as the paper has it."""
    found = []
    for projection, inputs in zip(projections, tokens(model, projections, batches), strict=True):
        entries = projection.weight.detach().double().abs() * inputs.norm(dim=0)[None, :]
        found.append(by_head(entries.T).sum((1, 2)))
    return torch.cat(found)


def test_the_scores_are_those_of_the_formula() -> None:
    for name in ("bert", "llama"):
        model: Any = build(name)
        batches = uneven(family_named(name))
        if name == "bert":
            projections = [layer.attention.output.dense for layer in model.bert.encoder.layer]
        else:
            projections = [layer.self_attn.o_proj for layer in model.model.layers]
        expected = transcribed(model, projections, batches)
        by_layer = expected.unflatten(0, (len(projections), -1))
        within = (by_layer / by_layer.norm(dim=1, keepdim=True)).flatten()
        for normalise, wanted in ((False, expected), (True, within)):
            pruner = hc.Wanda(5, normalise=normalise)
            pruner.fit(model, batches)
            assert torch.allclose(pruner.importance(), wanted, rtol=1e-5)
            assert pruner.mask().kept == set(wanted.topk(5).indices.tolist())


def test_a_group_is_worth_the_sum_of_its_heads() -> None:
    model, batches = build("llama"), uneven(family_named("llama"))
    single, grouped = (hc.Wanda(4, unit=unit, normalise=False) for unit in ("head", "group"))
    for pruner in (single, grouped):
        pruner.fit(model, batches)
    sums = [pruner.importance().unflatten(0, (-1, 2)).sum(1) for pruner in (single, grouped)]
    assert torch.allclose(*sums)


def test_an_encoder_decoder_counts_the_tokens_of_each_side() -> None:
    family = family_named("t5")
    model, batches = build(family), uneven(family)
    pruner = hc.Wanda(5)
    pruner.fit(model, batches)
    counts = {
        sums.output.block.kind: sums.count
        for sums in input_sums(model, [output for output, _ in pruner.outputs(model)], batches)
    }
    sources = sum(int(batch["attention_mask"].sum()) for batch in batches)
    targets = sum(int((batch["labels"] != -100).sum()) for batch in batches)
    assert counts == {"encoder": sources, "decoder": targets, "cross": targets}


def test_labels_are_not_read() -> None:
    model, batches = build("bert"), uneven(family_named("bert"))
    with_labels, without = hc.Wanda(5), hc.Wanda(5)
    with_labels.fit(model, batches)
    without.fit(model, own_answers(model, batches))
    assert torch.equal(with_labels.importance(), without.importance())
