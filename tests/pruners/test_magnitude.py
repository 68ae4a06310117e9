"""Magnitude ranks heads by their output weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import headcount as hc
from tests.pruners.rivals import HEAD
from tests.tiny import build


def norms(weights: list[Any], columns: int) -> list[float]:
    return [
        float(weight[:, start : start + columns].double().norm())
        for weight in weights
        for start in range(0, weight.shape[1], columns)
    ]


def test_a_head_is_worth_the_norm_of_its_output_weights() -> None:
    model: Any = build("bert")
    weights = [layer.attention.output.dense.weight.detach() for layer in model.bert.encoder.layer]
    pruner = hc.Magnitude(5, normalise=False)
    mask = pruner.fit(model)
    expected = norms(weights, HEAD)
    assert pruner.importance().tolist() == pytest.approx(expected)
    best = sorted(range(len(expected)), key=lambda head: -expected[head])[:5]
    assert mask.kept == set(best)


def test_weights_that_are_stored_the_other_way_round_are_read_so() -> None:
    model: Any = build("gpt2")
    weights = [layer.attn.c_proj.weight.detach().T for layer in model.transformer.h]
    pruner = hc.Magnitude(5, normalise=False)
    pruner.fit(model)
    assert pruner.importance().tolist() == pytest.approx(norms(weights, HEAD))


def test_a_group_is_worth_the_norm_of_all_its_weights() -> None:
    model: Any = build("llama")
    weights = [layer.self_attn.o_proj.weight.detach() for layer in model.model.layers]
    pruner = hc.Magnitude(4, unit="group", normalise=False)
    pruner.fit(model)
    found = pruner.importance().unflatten(0, (-1, 2))
    assert found.sum(1).tolist() == pytest.approx(norms(weights, 2 * HEAD))
    assert torch.equal(found[:, 0], found[:, 1])


def test_it_reads_no_data() -> None:
    model = build("t5")
    pruner = hc.Magnitude(3, kinds=["decoder"])
    pruner.score(model, None)  # type: ignore[arg-type]
    assert sum(name.startswith("decoder") for name in pruner.mask().names) == 3


def test_layers_of_larger_weights_have_no_larger_heads() -> None:
    model: Any = build("bert")
    found = []
    for factor in (1.0, 8.0):
        model.bert.encoder.layer[0].attention.output.dense.weight.data.mul_(factor)
        pruner = hc.Magnitude(5)
        pruner.fit(model)
        found.append(pruner.importance())
    assert torch.allclose(*found)
