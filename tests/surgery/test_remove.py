"""A model without heads is the model with those heads closed."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import nn

import headcount as hc
from tests.tiny import (
    Family,
    build,
    difference,
    families,
    family_named,
    floats,
    mask_for,
    masks,
    run,
)

CLOSE = 1e-5
attentions = pytest.mark.parametrize("attention", ["default", "eager"])


@attentions
@masks(
    "half",
    "uneven",
    "three_heads_each",
    "one_head",
    "empty_first_block",
    "empty_middle_block",
    "empty_every_block",
)
@families()
def test_removed_model_equals_masked_model(family: Family, mask_name: str, attention: str) -> None:
    model, inputs = build(family, attention), family.inputs()
    mask = mask_for(model, mask_name)
    whole = run(model, inputs)
    with hc.masked(model, mask):
        closed = run(model, inputs)
    hc.remove_heads(model, mask)
    assert difference(run(model, inputs), closed) < CLOSE
    assert difference(closed, whole) > 100 * CLOSE


@masks("half", "empty_first_block", "empty_every_block")
@families()
def test_exactly_the_kept_heads_are_left(family: Family, mask_name: str) -> None:
    model = build(family)
    whole, mask = hc.find_heads(model), mask_for(model, mask_name)
    removal = hc.remove_heads(model, mask)
    heads = hc.find_heads(model)
    assert len(heads) == len(mask)
    assert (heads.names, heads.indices) == (mask.names, mask.indices)
    assert (heads.layout, heads.born) == (whole.layout, whole.born)
    assert {block.name: block.heads for block in heads.blocks} == mask.by_block()
    assert removal.kept == mask
    assert removal.removed == (~mask).names


@families()
def test_two_removals_equal_one(family: Family) -> None:
    at_once, inputs = build(family), family.inputs()
    step_by_step = copy.deepcopy(at_once)
    first = mask_for(at_once, "uneven")
    second = first & mask_for(at_once, "half")
    assert 0 < len(second) < len(first)
    with hc.masked(at_once, second):
        closed = run(at_once, inputs)
    hc.remove_heads(at_once, second)
    hc.remove_heads(step_by_step, first)
    removal = hc.remove_heads(step_by_step, second)
    assert removal.removed == (first - second).names
    assert hc.find_heads(step_by_step) == hc.find_heads(at_once)
    assert difference(dict(step_by_step.state_dict()), dict(at_once.state_dict())) == 0
    assert difference(run(step_by_step, inputs), run(at_once, inputs)) == 0
    assert difference(run(step_by_step, inputs), closed) < CLOSE


@families()
def test_a_pruned_model_can_lose_its_last_heads(family: Family) -> None:
    model, inputs = build(family), family.inputs()
    nothing = mask_for(model, "empty_every_block")
    with hc.masked(model, nothing):
        closed = run(model, inputs)
    hc.remove_heads(model, mask_for(model, "three_heads_each"))
    hc.remove_heads(model, nothing)
    assert len(hc.find_heads(model)) == 0
    assert difference(run(model, inputs), closed) < CLOSE


@families()
def test_keeping_every_head_changes_nothing(family: Family) -> None:
    model, inputs = build(family), family.inputs()
    whole = run(model, inputs)
    removal = hc.remove_heads(model, hc.HeadMask.all(hc.find_heads(model)))
    assert removal.removed == ()
    assert removal.parameters_before == removal.parameters_after == model.num_parameters()
    assert difference(run(model, inputs), whole) == 0


@masks("half", "empty_every_block")
def test_parameters_go_with_their_heads(mask_name: str) -> None:
    model = build("bert")
    per_head = 4 * 32 * 8 + 3 * 8  # rows of q, k, v and columns of o; biases of q, k, v
    removal = hc.remove_heads(model, mask_for(model, mask_name))
    gone = removal.parameters_before - removal.parameters_after
    assert gone == per_head * len(removal.removed)
    assert removal.parameters_after == model.num_parameters()


@families()
def test_every_removed_head_makes_the_model_smaller(family: Family) -> None:
    model = build(family)
    sizes = [model.num_parameters()]
    for mask_name in ("three_heads_each", "empty_every_block"):
        removal = hc.remove_heads(model, mask_for(model, mask_name))
        assert removal.parameters_before == sizes[-1]
        sizes.append(removal.parameters_after)
    assert sizes == sorted(set(sizes), reverse=True)


@families()
def test_modules_keep_their_classes(family: Family) -> None:
    model = build(family)
    classes = {name: type(module) for name, module in model.named_modules()}
    hc.remove_heads(model, mask_for(model, "empty_first_block"))
    assert all(isinstance(model.get_submodule(name), cls) for name, cls in classes.items())


@families()
def test_projections_state_their_new_sizes(family: Family) -> None:
    model = build(family)
    hc.remove_heads(model, mask_for(model, "half"))
    for module in model.modules():
        if isinstance(module, nn.Linear):
            assert (module.out_features, module.in_features) == tuple(module.weight.shape)


@masks("three_heads_each", "empty_first_block")
@families()
def test_a_copy_of_a_pruned_model_gives_the_same_outputs(family: Family, mask_name: str) -> None:
    model, inputs = build(family), family.inputs()
    hc.remove_heads(model, mask_for(model, mask_name))
    twin = copy.deepcopy(model)
    outputs = run(model, inputs)
    assert difference(run(twin, inputs), outputs) == 0
    assert hc.find_heads(twin) == hc.find_heads(model)
    hc.remove_heads(twin, hc.HeadMask.none(hc.find_heads(twin)))
    assert difference(run(model, inputs), outputs) == 0


@masks("half", "three_heads_each", "empty_first_block")
@families("bert", "llama", "bloom", "t5", "olmo2")
def test_a_pruned_model_can_be_pickled(family: Family, mask_name: str) -> None:
    model, inputs = build(family), family.inputs()
    hc.remove_heads(model, mask_for(model, mask_name))
    twin = pickle.loads(pickle.dumps(model))
    assert difference(run(twin, inputs), run(model, inputs)) == 0


@masks("half", "empty_first_block")
@families()
def test_removed_model_equals_masked_model_in_double_precision(
    family: Family, mask_name: str
) -> None:
    model = build(family)
    inputs = {k: v.double() if v.is_floating_point() else v for k, v in family.inputs().items()}
    inputs.pop("attention_mask", None)  # eager softmax is in float32, where this mask is infinite
    mask = mask_for(model, mask_name)
    removed = copy.deepcopy(model)
    hc.remove_heads(removed, mask)
    removed.to(torch.float64)
    model.to(torch.float64)
    with hc.masked(model, mask):
        closed = run(model, inputs)
    assert {tensor.dtype for tensor in closed.values()} == {torch.float64}
    assert difference(run(removed, inputs), closed) < 1e-6  # norms and rotations stay in float32


@masks("half", "empty_first_block")
@families()
def test_a_pruned_model_learns(family: Family, mask_name: str) -> None:
    model, inputs = build(family), family.inputs()
    hc.remove_heads(model, mask_for(model, mask_name))
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    losses = []
    for _ in range(2):
        loss = floats(model(**inputs)).popitem()[1].square().mean()
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert losses[1] < losses[0]


def test_an_emptied_block_adds_its_output_bias() -> None:
    model, inputs = build("gpt2"), family_named("gpt2").inputs()
    hc.remove_heads(model, mask_for(model, "empty_first_block"))
    block = model.transformer.h[0]
    states = torch.randn(2, 7, 32)
    assert torch.equal(block.attn(states)[0], block.attn.c_proj.bias.expand(2, 7, 32))
    assert block.attn.c_attn.weight.numel() == block.attn.c_proj.weight.numel() == 0
    assert run(model, inputs)


def test_the_attention_implementation_can_be_changed_afterwards() -> None:
    for name in ("bert", "llama", "bart"):
        family = family_named(name)
        removed, expected = build(family), build(family, "eager")
        for model in (removed, expected):
            hc.remove_heads(model, mask_for(model, "uneven"))
        removed.set_attn_implementation("eager")
        inputs = family.inputs()
        assert difference(run(removed, inputs), run(expected, inputs)) < CLOSE
        weights = removed(**inputs, output_attentions=True)
        assert any("attentions" in part for part in floats(weights))
