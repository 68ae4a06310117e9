"""What is left of a model learns as it learned while the other heads were closed."""

from __future__ import annotations

import copy

import torch
from torch import Tensor
from transformers import PreTrainedModel

import headcount as hc
from headcount import HeadMask
from tests.tiny import Family, Inputs, build, families, floats, mask_for, masks

CLOSE = 1e-5


def gradients(model: PreTrainedModel, inputs: Inputs) -> dict[str, Tensor]:
    """The gradient of every parameter; zeros where there is none."""
    loss = torch.zeros(())
    for output in floats(model(**inputs)).values():
        loss = loss + (output * torch.linspace(-1, 1, output.numel()).view_as(output)).mean()
    loss.backward()
    return {
        name: torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        for name, parameter in model.named_parameters()
    }


def survivors(model: PreTrainedModel, mask: HeadMask) -> dict[str, Tensor]:
    """Where the values of each parameter of the pruned model were in the whole one."""
    numbered = copy.deepcopy(model)
    for parameter in numbered.parameters():
        parameter.data = torch.arange(parameter.numel()).view(parameter.shape).float()
    hc.remove_heads(numbered, mask)
    return {name: parameter.detach().long() for name, parameter in numbered.named_parameters()}


@masks("half", "three_heads_each", "empty_first_block")
@families()
def test_gradients_of_what_is_left_equal_those_of_the_masked_model(
    family: Family, mask_name: str
) -> None:
    model, inputs = build(family), family.inputs()
    removed, mask = copy.deepcopy(model), mask_for(model, mask_name)
    places = survivors(model, mask)
    hc.remove_heads(removed, mask)
    with hc.masked(model, mask):
        whole = gradients(model, inputs)
    left = gradients(removed, inputs)
    assert left.keys() == whole.keys()
    assert any((gradient != 0).any() for gradient in left.values())
    for name, gradient in left.items():
        expected = whole[name].flatten()
        scale = max(1.0, float(expected.abs().max()))
        assert ((expected[places[name]] - gradient).abs() <= CLOSE * scale).all(), name
        gone = torch.ones_like(expected).index_fill(0, places[name].flatten(), 0)
        assert ((expected * gone).abs() <= CLOSE * scale).all(), f"{name} loses more than its heads"


@masks("half", "empty_first_block")
@families()
def test_parameters_stay_the_same_objects(family: Family, mask_name: str) -> None:
    model = build(family)
    before = dict(model.named_parameters())
    hc.remove_heads(model, mask_for(model, mask_name))
    after = dict(model.named_parameters())
    assert after.keys() == before.keys()
    assert all(after[name] is parameter for name, parameter in before.items())


@masks("half", "empty_first_block")
@families()
def test_frozen_parameters_stay_frozen(family: Family, mask_name: str) -> None:
    model = build(family)
    for number, parameter in enumerate(model.parameters()):
        parameter.requires_grad_(number % 2 == 0)
    before = {name: p.requires_grad for name, p in model.named_parameters()}
    hc.remove_heads(model, mask_for(model, mask_name))
    assert {name: p.requires_grad for name, p in model.named_parameters()} == before


def tied_names(model: PreTrainedModel) -> set[frozenset[str]]:
    groups: dict[int, set[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        groups.setdefault(id(parameter), set()).add(name)
    return {frozenset(names) for names in groups.values() if len(names) > 1}


@families("bert", "albert", "electra", "gpt2", "opt", "gemma2", "t5", "bart", "whisper")
def test_tied_weights_stay_tied(family: Family) -> None:
    model = build(family)
    tied = tied_names(model)
    assert tied
    hc.remove_heads(model, mask_for(model, "half"))
    assert tied_names(model) == tied
    assert model.get_input_embeddings().weight is model.get_output_embeddings().weight


@masks("half", "empty_first_block")
@families("bert", "gpt2", "llama", "phi3", "t5")
def test_gradients_held_at_the_time_are_cut_along(family: Family, mask_name: str) -> None:
    model, inputs = build(family), family.inputs()
    whole = gradients(model, inputs)
    mask = mask_for(model, mask_name)
    places = survivors(model, mask)
    hc.remove_heads(model, mask)
    for name, parameter in model.named_parameters():
        held = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        assert torch.equal(held, whole[name].flatten()[places[name]])
