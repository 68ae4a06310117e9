"""Adapters of peft: merged before heads are removed, or put on the model that is left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import PreTrainedModel

import headcount as hc
from tests.tiny import build, difference, family_named, mask_for, run

peft = pytest.importorskip("peft")
# A block without heads has projections without rows, and gets adapters of that size.
pytestmark = pytest.mark.filterwarnings("ignore:Initializing zero-element tensors is a no-op")
FAMILIES = {"bert": ["query", "value"], "llama": ["q_proj", "v_proj"], "bart": ["q_proj", "v_proj"]}


def adapted(model: PreTrainedModel, modules: list[str], **options: Any) -> Any:
    """With adapters that say something: they begin as zero."""
    torch.manual_seed(0)
    settings = peft.LoraConfig(target_modules=modules, init_lora_weights=False, **options)
    return peft.get_peft_model(model, settings).eval()


@pytest.mark.parametrize("name", FAMILIES)
def test_adapters_in_the_attention_are_to_be_merged_first(name: str) -> None:
    model = adapted(build(name), FAMILIES[name])
    with pytest.raises(hc.HeadcountError, match=r"has adapters .* model\.merge_and_unload"):
        hc.find_heads(model)
    inputs = family_named(name).inputs()
    wanted, merged = run(model, inputs), model.merge_and_unload()
    assert difference(run(merged, inputs), wanted) < 1e-5
    mask = mask_for(merged, "half")
    with hc.masked(merged, mask):
        masked = run(merged, inputs)
    hc.remove_heads(merged, mask)
    assert difference(run(merged, inputs), masked) < 1e-5


def test_also_if_they_are_in_one_layer_alone() -> None:
    model = adapted(build("bert"), ["query"], layers_to_transform=[1])
    with pytest.raises(hc.HeadcountError, match=r"layer\.1\..* has adapters"):
        hc.find_heads(model)


def test_elsewhere_they_may_stay() -> None:
    model = adapted(build("llama"), ["up_proj"])
    inputs, mask = family_named("llama").inputs(), mask_for(model, "half")
    with hc.masked(model, mask):
        masked = run(model, inputs)
    hc.remove_heads(model, mask)
    assert difference(run(model, inputs), masked) < 1e-5


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("mask_name", ["half", "empty_first_block"])
def test_new_ones_go_on_a_pruned_model(name: str, mask_name: str, tmp_path: Path) -> None:
    small, inputs = build(name), family_named(name).inputs()
    hc.remove_heads(small, mask_for(small, mask_name))
    kept = len(hc.find_heads(small))
    tuned = adapted(small, FAMILIES[name])
    wanted, merged = run(tuned, inputs), tuned.merge_and_unload()
    merged.save_pretrained(tmp_path)
    again = type(merged).from_pretrained(tmp_path).eval()
    assert len(hc.find_heads(again)) == kept
    assert difference(run(again, inputs), wanted) < 1e-5


def test_adapters_on_a_pruned_model_are_to_be_merged_before_the_next_cut() -> None:
    model = build("llama")
    heads = hc.find_heads(model)
    hc.remove_heads(model, hc.HeadMask.random(heads, keep=6, seed=0))
    model = adapted(model, FAMILIES["llama"])
    fewer = hc.HeadMask.random(hc.find_heads(model), keep=3, seed=0)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(hc.HeadcountError, match=r"has adapters .* model\.merge_and_unload"):
        hc.remove_heads(model, fewer)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
