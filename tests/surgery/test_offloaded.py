"""Weights that accelerate keeps elsewhere can be masked and scored, but not cut or fitted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import cpu_offload, disk_offload
from transformers import LlamaForCausalLM

import headcount as hc
from headcount import HeadcountError
from tests.tiny import build, family_named, run


@pytest.mark.parametrize("where", ["memory", "disk"])
def test_offloaded_models_are_refused_and_still_run(where: str, tmp_path: Path) -> None:
    model = build("llama")
    expected = run(model, family_named("llama").inputs())
    mask = hc.HeadMask.random(hc.find_heads(model), keep=3, seed=0)
    if where == "memory":
        cpu_offload(model, torch.device("cpu"))
    else:
        disk_offload(model, str(tmp_path), torch.device("cpu"))
    with pytest.raises(HeadcountError, match=r"decoder\.0 .* are offloaded .* load the model with"):
        hc.remove_heads(model, mask)
    found = run(model, family_named("llama").inputs())
    assert all(torch.equal(expected[name], found[name]) for name in expected)


PLACES = ["one device", "memory", "disk", "partly on disk"]
PART = {f"model.layers.{layer}": "disk" for layer in (1, 2)}
REST = ("model.embed_tokens", "model.norm", "model.rotary_emb", "model.layers.0", "lm_head")


def spread(where: str, folder: Path) -> Any:
    """The tiny model from sharded files, with its weights at a place."""
    source = folder / "source"
    if not source.is_dir():
        build("llama").save_pretrained(source, max_shard_size="20KB")
        assert (source / "model.safetensors.index.json").is_file()
    if where == "one device":
        return LlamaForCausalLM.from_pretrained(source, device_map={"": "cpu"})
    if where == "partly on disk":
        places = {**PART, **dict.fromkeys(REST, "cpu")}
        return LlamaForCausalLM.from_pretrained(
            source, device_map=places, offload_folder=str(folder / "part")
        )
    model = LlamaForCausalLM.from_pretrained(source)
    if where == "memory":
        return cpu_offload(model, torch.device("cpu"))
    return disk_offload(model, str(folder / "all"), torch.device("cpu"))


@pytest.mark.parametrize("where", PLACES)
def test_spread_models_are_masked_and_scored_as_others(where: str, tmp_path: Path) -> None:
    model, plain = spread(where, tmp_path), build("llama")
    inputs = family_named("llama").inputs()
    batch = {**inputs, "labels": inputs["input_ids"]}
    mask = hc.HeadMask.random(hc.find_heads(model), keep=3, seed=0)
    with hc.masked(model, mask), hc.masked(plain, mask):
        torch.testing.assert_close(run(model, inputs), run(plain, inputs))
    for method in (hc.Michel, hc.Surgeon, hc.Osscar):
        found, expected = method(3), method(3)
        found.fit(model, [batch])
        expected.fit(plain, [batch])
        torch.testing.assert_close(found.importance(), expected.importance(), rtol=1e-4, atol=1e-9)


@pytest.mark.parametrize("where", ["memory", "disk"])
def test_heads_for_a_share_are_not_counted_elsewhere(where: str, tmp_path: Path) -> None:
    with pytest.raises(hc.HeadcountError, match="cannot be cut to be counted; load the model"):
        hc.heads_for(spread(where, tmp_path), cache=0.5)


@pytest.mark.parametrize("where", PLACES)
def test_only_weights_that_are_there_are_fitted(where: str, tmp_path: Path) -> None:
    model, plain = spread(where, tmp_path), build("llama")
    batches = [family_named("llama").inputs()]
    mask = hc.HeadMask.random(hc.find_heads(model), keep=3, seed=0)
    if where != "one device":
        with pytest.raises(
            HeadcountError, match=r"are offloaded .* cannot be fitted; load the mod"
        ):
            hc.compensate(model, mask, batches)
        return
    for one in (model, plain):
        hc.compensate(one, mask, batches)
        hc.remove_heads(one, mask)
    torch.testing.assert_close(run(model, batches[0]), run(plain, batches[0]))
    model.save_pretrained(tmp_path / "small")
    again = LlamaForCausalLM.from_pretrained(tmp_path / "small", device_map={"": "cpu"})
    torch.testing.assert_close(run(again, batches[0]), run(plain, batches[0]))
