"""Gates of a training hold no memory of their own, and give the gradients of plain gates."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from transformers import BertConfig, BertForSequenceClassification

import headcount as hc
from headcount.bench.size import peak_memory
from tests.tiny import Family, build, family_named, floats

FAMILIES = ["bert", "gpt2", "llama", "t5", "vit"]


def loss_of(model: nn.Module, family: Family) -> Tensor:
    outputs = floats(model(**family.inputs()))
    return torch.stack([output.square().mean() for output in outputs.values()]).sum()


def gradients(model: nn.Module) -> dict[str, Tensor]:
    return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("name", FAMILIES)
def test_gradients_are_those_of_plain_gates(name: str) -> None:
    family = family_named(name)
    model = build(family)
    pruner = hc.JointDSP(keep=3)
    with pruner.attached(model) as gated:
        model.train()
        gated.begin_step(3, 10)
        torch.manual_seed(0)
        loss_of(model, family).backward()
        values = gated.spread(pruner.gates().detach()).to(torch.float32)
    saving, of_w = gradients(model), pruner.w.grad
    model.zero_grad()
    with hc.masked(model, values.requires_grad_()):
        torch.manual_seed(0)
        loss_of(model, family).backward()
    plain = gradients(model)
    assert saving.keys() == plain.keys()
    for parameter in plain:
        torch.testing.assert_close(saving[parameter], plain[parameter])
    expected = torch.autograd.grad((pruner.gates() * values.grad).sum(), pruner.w)[0]
    torch.testing.assert_close(of_w, expected, rtol=1e-4, atol=1e-8)


def test_a_failing_projection_leaves_no_hooks_on_saved_tensors() -> None:
    model = build(family_named("bert"))
    projection = model.get_submodule("bert.encoder.layer.0.attention.output.dense")
    with hc.JointDSP(keep=2).attached(model) as gated:
        model.train()
        gated.begin_step(0, 1)
        handle = projection.register_forward_pre_hook(lambda *_: (torch.ones(1, 1),))
        with pytest.raises(RuntimeError):
            loss_of(model, family_named("bert"))
        handle.remove()
        value = torch.ones(3, requires_grad=True)
        (square := value * value).sum().backward()
        # With hooks still in place this would be what they packed.
        assert square.grad_fn is not None
        assert square.grad_fn._raw_saved_self is not None  # type: ignore[attr-defined]
        loss_of(model, family_named("bert")).backward()


def test_memory_is_that_of_the_model_alone() -> None:
    config = BertConfig(
        hidden_size=64, num_hidden_layers=4, num_attention_heads=4, intermediate_size=64,
        vocab_size=50,
    )  # fmt: skip
    model = BertForSequenceClassification(config).train()
    inputs = {"input_ids": torch.randint(5, 50, (16, 64)), "labels": torch.zeros(16).long()}

    def step() -> None:
        model(**inputs).loss.backward()
        model.zero_grad()

    plain = peak_memory(step)
    with hc.JointDSP(keep=4).attached(model) as gated:
        gated.begin_step(0, 1)
        assert peak_memory(step) < 1.01 * plain
