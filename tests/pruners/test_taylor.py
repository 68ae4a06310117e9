"""Taylor adds up what the loss feels of a head's weights."""

from __future__ import annotations

from typing import Any

import pytest
from torch import Tensor

import headcount as hc
from headcount import HeadcountError
from headcount.pruners import backward
from headcount.pruners.own_answers import own_answers
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
                for head in range(first, first + heads):
                    rows = change.narrow(dim, head // sharing * HEAD, HEAD)
                    by_channel = rows.sum(1 - dim).abs()
                    total += (
                        float(rows.abs().sum() if form == "element" else by_channel.sum()) / sharing
                    )
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
            expected.append(sum(float(piece[:, own].sum(0).abs().sum()) for piece in pieces))
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


@pytest.mark.parametrize("form", ["element", "vector"])
def test_parts_that_stay_whole_are_read_where_they_are(form: str) -> None:
    """OLMo 2 norms queries and keys over all heads, so these stay when heads are removed."""
    family = family_named("olmo2")
    model: Any = build(family)
    heads = hc.find_heads(model)
    hc.remove_heads(model, hc.HeadMask.all(heads) - hc.HeadMask.from_indices(heads, [0, 1]))
    batches = uneven(family)
    pruner = hc.Taylor(3, form=form)
    pruner.fit(model, batches)
    (batch,) = in_one(batches)
    model(**batch).loss.backward()
    attention = model.model.layers[0].self_attn
    first, found = hc.find_heads(model).blocks[0], []
    sharing = first.anatomy.group_size
    for place, head in enumerate(first.heads):
        total = 0.0
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            weight, dim = getattr(attention, name).weight, int(name == "o_proj")
            own = head if name == "q_proj" else place
            if name in ("k_proj", "v_proj"):
                own = head // sharing if name == "k_proj" else 0
            rows = (weight.grad * weight.detach()).narrow(dim, own * HEAD, HEAD)
            by_channel = rows.sum(1 - dim).abs().sum()
            share = sharing if name in ("k_proj", "v_proj") else 1
            total += float(rows.abs().sum() if form == "element" else by_channel) / share
        found.append(total)
    assert pruner.importance()[: len(found)].tolist() == pytest.approx(found, rel=1e-3)


def test_own_answers_have_no_mean_gradient() -> None:
    model, batches = build("llama"), uneven(family_named("llama"))
    with pytest.raises(HeadcountError, match="form vector needs the mean gradient of labels"):
        hc.Taylor(5, form="vector", labels="none").fit(model, batches)
    pruner = hc.Taylor(5, labels="none")
    pruner.fit(model, own_answers(model, batches))
    assert float(pruner.importance().min()) > 0
