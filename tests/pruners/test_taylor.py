"""Taylor adds up what the loss feels of a head's weights."""

from __future__ import annotations

from typing import Any

import pytest
from torch import Tensor

import headcount as hc
from headcount.pruners import backward
from tests.pruners.rivals import HEAD, in_one, uneven
from tests.tiny import build, family_named


def parts_of(name: str, model: Any) -> list[list[tuple[Tensor, int, int]]]:
    """Of each layer the weights, the dimension with heads, and how many heads share rows."""
    if name == "bert":
        return [
            [
                (layer.attention.self.query.weight, 0, 1),
                (layer.attention.self.key.weight, 0, 1),
                (layer.attention.self.value.weight, 0, 1),
                (layer.attention.output.dense.weight, 1, 1),
            ]
            for layer in model.bert.encoder.layer
        ]
    if name == "llama":
        return [
            [
                (layer.self_attn.q_proj.weight, 0, 1),
                (layer.self_attn.k_proj.weight, 0, 2),
                (layer.self_attn.v_proj.weight, 0, 2),
                (layer.self_attn.o_proj.weight, 1, 1),
            ]
            for layer in model.model.layers
        ]
    blocks = [block.layer[0].SelfAttention for block in model.encoder.block]
    for block in model.decoder.block:
        blocks += [block.layer[0].SelfAttention, block.layer[1].EncDecAttention]
    return [[(a.q.weight, 0, 1), (a.k.weight, 0, 1), (a.v.weight, 0, 1), (a.o.weight, 1, 1)]
            for a in blocks]  # fmt: skip


def transcribed(name: str, model: Any, batches: Any, form: str, heads: int = 1) -> list[float]:
    """The sum over parts of each head, or of each group of so many heads, with plain autograd."""
    (batch,) = in_one(batches)
    model.zero_grad()
    model(**batch).loss.backward()
    found = []
    for parts in parts_of(name, model):
        number = parts[0][0].shape[0] // HEAD
        for first in range(0, number, heads):
            total = 0.0
            for weight, dim, sharing in parts:
                assert weight.grad is not None
                change = (weight.grad * weight.detach()).double()
                own = 0.0
                for head in range(first, first + heads):
                    rows = change.narrow(dim, head // sharing * HEAD, HEAD)
                    own += float(rows.abs().sum() if form == "element" else rows.sum()) / sharing
                total += abs(own)
            found.append(total)
    model.zero_grad()
    return found


@pytest.mark.parametrize("form", ["element", "vector"])
@pytest.mark.parametrize("name", ["bert", "llama", "t5"])
@pytest.mark.parametrize("economy", [False, True])
def test_the_scores_are_those_of_the_formula(
    name: str, form: str, economy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if economy:  # with everything that large models need
        monkeypatch.setattr(backward, "GRAPH", 0.0)
        monkeypatch.setattr(backward, "LOGITS", 1e-3)
        monkeypatch.setattr(backward, "TOKENS", 1)
    model, batches = build(name), uneven(family_named(name))
    pruner = hc.Taylor(5, form=form)
    pruner.fit(model, batches)
    found = pruner.importance().tolist()
    assert found == pytest.approx(transcribed(name, model, batches, form), rel=1e-3)


@pytest.mark.parametrize("form", ["element", "vector"])
def test_a_group_owns_all_its_weights(form: str) -> None:
    model, batches = build("llama"), uneven(family_named("llama"))
    pruner = hc.Taylor(4, form=form, unit="group")
    pruner.fit(model, batches)
    found = pruner.importance().unflatten(0, (-1, 2)).sum(1).tolist()
    assert found == pytest.approx(transcribed("llama", model, batches, form, heads=2), rel=1e-3)


def test_projections_in_one_tensor_count_like_three() -> None:
    """GPT-2 has queries, keys and values in one weight, with the heads along its columns."""
    model: Any = build("gpt2")
    batches = uneven(family_named("gpt2"))
    pruner = hc.Taylor(5, form="vector")
    pruner.fit(model, batches)
    (batch,) = in_one(batches)
    model(**batch).loss.backward()
    expected = []
    for layer in model.transformer.h:
        fused, out = ((w.grad * w.detach()).double() for w in (
            layer.attn.c_attn.weight, layer.attn.c_proj.weight
        ))  # fmt: skip
        pieces = [*fused.split(32, dim=1), out.T]
        for head in range(4):
            own = slice(head * HEAD, (head + 1) * HEAD)
            expected.append(sum(float(piece[:, own].sum().abs()) for piece in pieces))
    assert pruner.importance().tolist() == pytest.approx(expected, rel=1e-3)


def test_a_head_that_has_lost_its_group_owns_its_keys_alone() -> None:
    family = family_named("llama")
    model: Any = build(family)
    heads = hc.find_heads(model)
    hc.remove_heads(model, hc.HeadMask.all(heads) - hc.HeadMask.from_indices(heads, [1]))
    batches = uneven(family)
    pruner = hc.Taylor(5)
    pruner.fit(model, batches)
    (batch,) = in_one(batches)
    model(**batch).loss.backward()
    attention = model.model.layers[0].self_attn
    expected = sum(
        float((p.weight.grad * p.weight.detach()).narrow(dim, 0, HEAD).abs().sum())
        for p, dim in (
            (attention.q_proj, 0), (attention.k_proj, 0), (attention.v_proj, 0),
            (attention.o_proj, 1),
        )
    )  # fmt: skip
    assert float(pruner.importance()[0]) == pytest.approx(expected, rel=1e-3)
