"""The trial before the first cut: what recognition overlooked is refused, and nothing is harmed."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.llama import modeling_llama

import headcount as hc
from headcount.surgery import trial
from tests.tiny import FAMILIES, build


class Louder(nn.Linear):
    """An output projection with a volume for each column that no rule of recognition knows."""

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return super().forward(values * torch.linspace(0.2, 2.0, 32)[: values.shape[-1]])


class ScaledHeads(modeling_llama.LlamaAttention):
    """Attention with such a projection."""

    def __init__(self, config: Any, layer_idx: int) -> None:
        super().__init__(config, layer_idx)
        self.o_proj = Louder(32, 32, bias=False)


class CountedHeads(modeling_llama.LlamaAttention):
    """Attention whose code knows how many heads there are."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        output, weights = super().forward(*args, **kwargs)
        return output + self.q_proj.weight.view(4, -1).sum(), weights


def llama_with(attention: type[nn.Module], monkeypatch: pytest.MonkeyPatch) -> LlamaForCausalLM:
    monkeypatch.setattr(modeling_llama, "LlamaAttention", attention)
    trial._TRIED.clear()
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=99, hidden_size=32, intermediate_size=32, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=4,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


def test_a_number_per_head_that_was_overlooked_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = llama_with(ScaledHeads, monkeypatch)
    before = copy.deepcopy(model.state_dict())
    mask = hc.HeadMask.random(hc.find_heads(model), keep=3, seed=0)
    with pytest.raises(hc.HeadcountError, match=r"decoder\.0 .* its answer differed by"):
        hc.remove_heads(model, mask)
    after = model.state_dict()
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())
    assert len(hc.find_heads(model)) == 8


def test_code_that_breaks_without_heads_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = llama_with(CountedHeads, monkeypatch)
    mask = hc.HeadMask.random(hc.find_heads(model), keep=3, seed=0)
    with pytest.raises(hc.HeadcountError, match="in a trial on a copy of it"):
        hc.remove_heads(model, mask)


def test_a_trial_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    model = llama_with(ScaledHeads, monkeypatch)
    monkeypatch.setenv("HEADCOUNT_PROBE", "0")
    hc.remove_heads(model, hc.HeadMask.random(hc.find_heads(model), keep=3, seed=0))
    assert len(hc.find_heads(model)) == 3


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_passes_its_trial(family: str) -> None:
    trial._TRIED.clear()
    model = build(family)
    heads = hc.find_heads(model)
    hc.remove_heads(model, hc.HeadMask.random(heads, keep=len(heads) // 2, seed=0))
    assert trial._TRIED, "no block of it was tried"
