"""Scores in little memory are the scores of the plain computation."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM

import headcount as hc
from headcount import HeadcountError
from headcount.bench.size import peak_memory
from headcount.heads.mask import HeadMask
from headcount.pruners import backward
from headcount.pruners.curvature import curvatures
from headcount.pruners.gate_gradients import Granularity
from headcount.pruners.michel import importance
from headcount.surgery.outputs import Output, outputs_of, tokens_among
from tests.pruners.test_surgeon import labelled
from tests.tiny import Family, Inputs, build, families, family_named


@pytest.fixture(params=["as it comes", "again and in slices"])
def economy(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """As tiny models are scored, and with everything that large ones need."""
    if request.param == "again and in slices":
        monkeypatch.setattr(backward, "GRAPH", 0.0)
        monkeypatch.setattr(backward, "LOGITS", 1e-3)
        monkeypatch.setattr(backward, "TOKENS", 1)
    return str(request.param)


def all_outputs(model: nn.Module) -> list[Output]:
    heads = hc.find_heads(model)
    return outputs_of(model, heads, HeadMask.all(heads))


def hear(heard: Any, output: Output, _: nn.Module, args: Any, answer: Tensor) -> Tensor:
    leaf = torch.zeros_like(answer, requires_grad=True)
    heard.append((output, args[0].detach(), leaf))
    return answer + leaf


def plain_moments(model: Any, batches: list[Inputs]) -> dict[str, tuple[Tensor, Tensor]]:
    """The second moments of inputs and gradients, from one whole graph per batch."""
    rows: dict[str, list[tuple[Tensor, Tensor]]] = {}
    for batch in batches:
        heard: list[tuple[Output, Tensor, Tensor]] = []
        hooks = [
            output.projection.register_forward_hook(partial(hear, heard, output))
            for output in all_outputs(model)
        ]
        loss = model(**batch).loss
        felt = torch.autograd.grad(loss, [leaf for *_, leaf in heard])
        for (output, values, _), gradient in zip(heard, felt, strict=True):
            size = len(batch["labels"])
            both = torch.cat([values, gradient * size], -1)
            found = tokens_among(both, model, batch, output.block.kind)
            width = values.shape[-1]
            rows.setdefault(output.name, []).append((found[:, :width], found[:, width:]))
        for hook in hooks:
            hook.remove()
    examples = sum(len(batch["labels"]) for batch in batches)
    moments = {}
    for name, parts in rows.items():
        values, gradients = (torch.cat(part).double() for part in zip(*parts, strict=True))
        moments[name] = (values.T @ values / len(values), gradients.T @ gradients / examples)
    return moments


@pytest.mark.usefixtures("economy")
@families("bert", "gpt2", "llama", "t5", "bart", "albert")
@pytest.mark.parametrize("kind", [torch.float64, torch.float32])
def test_curvatures_are_those_of_one_whole_graph(family: Family, kind: torch.dtype) -> None:
    model: Any = build(family).to(kind)
    batches = labelled(family)
    expected = plain_moments(model, batches)
    close = 1e-12 if kind == torch.float64 else 1e-6
    for found in curvatures(model, all_outputs(model), batches):
        inputs, gradients = expected[found.output.name]
        width = len(inputs)
        assert (found.inputs[:width, :width] - inputs).norm() < close * inputs.norm()
        assert (found.gradients - gradients).norm() < close * gradients.norm()
    assert all(p.grad is None and p.requires_grad for p in model.parameters())
    assert not any("forward" in vars(module) for module in model.modules())


@pytest.mark.parametrize("granularity", ["example", "token", "batch"])
@families("bert", "llama", "albert", "bart")
def test_michels_scores_are_the_same_again_and_in_slices(
    family: Family, granularity: Granularity, monkeypatch: pytest.MonkeyPatch
) -> None:
    model: Any = build(family).double()
    heads, batches = hc.find_heads(model), labelled(family)
    monkeypatch.setattr(backward, "GRAPH", 100.0)
    monkeypatch.setattr(backward, "LOGITS", 100.0)
    expected = importance(model, heads, HeadMask.all(heads), batches, granularity)
    monkeypatch.setattr(backward, "GRAPH", 0.0)
    monkeypatch.setattr(backward, "LOGITS", 1e-3)
    monkeypatch.setattr(backward, "TOKENS", 1)
    found = importance(model, heads, HeadMask.all(heads), batches, granularity)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-14)


@pytest.mark.usefixtures("economy")
@pytest.mark.parametrize("method", [hc.Surgeon, hc.Michel])
@families("bert", "llama", "t5", "bart")
def test_scores_do_not_depend_on_gradient_checkpointing(family: Family, method: Any) -> None:
    """It lets embeddings require gradients, in evaluation mode and with frozen weights too."""
    model: Any = build(family).double()
    batches = labelled(family)
    plain, checkpointed = method(2), method(2)
    plain.fit(model, batches)
    model.gradient_checkpointing_enable()
    checkpointed.fit(model, batches)
    assert (plain.importance() > 0).all()
    torch.testing.assert_close(checkpointed.importance(), plain.importance(), rtol=1e-9, atol=0.0)


def test_a_loss_of_another_kind_is_the_models_own(monkeypatch: pytest.MonkeyPatch) -> None:
    model: Any = build("llama")
    batches = labelled(family_named("llama"))
    usual = hc.Surgeon(2, measured=False)
    usual.fit(model, batches)
    plain = model.loss_function
    monkeypatch.setattr(
        type(model), "loss_function", property(lambda _: lambda *a, **k: 3 * plain(*a, **k))
    )
    larger = hc.Surgeon(2, measured=False)
    larger.fit(model, batches)
    torch.testing.assert_close(larger.importance(), 9 * usual.importance(), rtol=1e-3, atol=0.0)


def language_model() -> LlamaForCausalLM:
    torch.manual_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(
            hidden_size=64, intermediate_size=128, num_hidden_layers=6, num_attention_heads=4,
            num_key_value_heads=2, vocab_size=8000, tie_word_embeddings=True,
        )
    )  # fmt: skip


@pytest.mark.parametrize("method", [hc.Surgeon, hc.Michel])
def test_scores_of_a_language_model_take_less_than_its_logits(method: Any) -> None:
    model = language_model()
    ids = torch.randint(8000, (16, 256), generator=torch.Generator().manual_seed(0))
    batch = {"input_ids": ids, "labels": ids}
    logits = ids.numel() * 8000 * 4
    assert peak_memory(lambda: method(8).fit(model, [batch])) < 0.25 * logits


@pytest.mark.usefixtures("economy")
@pytest.mark.parametrize("method", [partial(hc.Surgeon, measured=False), hc.Michel])
def test_half_precision_gives_nearly_the_same_scores(method: Any) -> None:
    """The mean over many tokens has gradients that float16 alone would round to 0."""
    model: Any = language_model()
    ids = torch.randint(8000, (8, 64), generator=torch.Generator().manual_seed(0))
    batch = {"input_ids": ids, "labels": ids}
    whole, half = method(8), method(8)
    whole.fit(model, [batch])
    half.fit(model.half(), [batch])
    torch.testing.assert_close(half.importance(), whole.importance(), rtol=0.1, atol=0.0)


def test_numbers_too_large_for_half_precision_are_refused() -> None:
    model: Any = language_model().half()
    with torch.no_grad():
        model.model.layers[2].self_attn.v_proj.weight.fill_(6e4)
    ids = torch.randint(8000, (1, 8))
    with pytest.raises(HeadcountError, match=r"not finite in torch\.float16"):
        hc.Surgeon(8).fit(model, [{"input_ids": ids, "labels": ids}])
