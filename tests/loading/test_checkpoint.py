"""A pruned model is saved and loaded like any other."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import transformers
from safetensors import safe_open
from torch import nn
from transformers import AutoModel, PreTrainedModel

import headcount as hc
from headcount import HeadMask
from tests.tiny import Family, build, difference, families, family_named, mask_for, run


def pruned(family: Family | str, kind: str = "half", attention: str = "default") -> PreTrainedModel:
    model = build(family, attention)
    hc.remove_heads(model, mask_for(model, kind))
    return model


def same_weights(first: nn.Module, second: nn.Module) -> bool:
    a, b = first.state_dict(), second.state_dict()
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@families()
@pytest.mark.parametrize("kind", ["half", "empty_first_block"])
def test_reloaded_model_is_identical(family: Family, kind: str, tmp_path: Path) -> None:
    model = pruned(family, kind)
    model.save_pretrained(tmp_path)
    loaded = type(model).from_pretrained(tmp_path)
    assert same_weights(loaded, model)
    assert hc.find_heads(loaded).names == hc.find_heads(model).names
    assert difference(run(loaded, family.inputs()), run(model, family.inputs())) == 0


@families("bert", "gpt2", "llama", "t5", "vit", "clip")
def test_reloaded_model_is_identical_in_shards(family: Family, tmp_path: Path) -> None:
    model = pruned(family)
    model.save_pretrained(tmp_path, max_shard_size="20KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    assert same_weights(type(model).from_pretrained(tmp_path), model)


@pytest.mark.parametrize(
    ("name", "auto"),
    [
        ("bert", "AutoModelForMaskedLM"),
        ("gpt2", "AutoModelForCausalLM"),
        ("qwen3", "AutoModelForCausalLM"),
        ("t5", "AutoModelForSeq2SeqLM"),
        ("whisper", "AutoModelForSpeechSeq2Seq"),
        ("vit", "AutoModelForImageClassification"),
        ("wav2vec2", "AutoModelForCTC"),
        ("clip", "AutoModelForZeroShotImageClassification"),
    ],
)
def test_auto_classes_load_pruned_folders(name: str, auto: str, tmp_path: Path) -> None:
    model = pruned(name)
    model.save_pretrained(tmp_path)
    loaded = getattr(transformers, auto).from_pretrained(tmp_path)
    assert type(loaded) is type(model)
    assert same_weights(loaded, model)


@pytest.mark.parametrize("name", ["bert", "llama", "t5"])
def test_reloads_in_bfloat16(name: str, tmp_path: Path) -> None:
    model = pruned(name)
    model.save_pretrained(tmp_path)
    loaded = type(model).from_pretrained(tmp_path, dtype=torch.bfloat16)
    whole = model.state_dict()
    # transformers keeps a few tensors of T5 in float32
    assert loaded.dtype == torch.bfloat16
    assert all(torch.equal(t, whole[name].to(t.dtype)) for name, t in loaded.state_dict().items())


def test_the_full_size_is_never_allocated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = pruned("bert")
    model.save_pretrained(tmp_path)
    devices: list[str] = []
    original = hc.checkpoint.remove_heads

    def watched(model: nn.Module, mask: HeadMask) -> object:
        devices.extend(parameter.device.type for parameter in model.parameters())
        return original(model, mask)

    monkeypatch.setattr(hc.checkpoint, "remove_heads", watched)
    type(model).from_pretrained(tmp_path)
    assert set(devices) == {"meta"}


def test_a_loaded_model_is_an_ordinary_one(tmp_path: Path) -> None:
    pruned("bert").save_pretrained(tmp_path)
    loaded = AutoModel.from_pretrained(tmp_path)
    assert not getattr(loaded, "is_quantized", False)
    assert getattr(loaded, "hf_quantizer", None) is None
    loaded.half().float()  # which transformers forbids for quantised models


def test_a_loaded_model_can_be_pruned_further_and_saved_again(tmp_path: Path) -> None:
    model, inputs = pruned("llama"), family_named("llama").inputs()
    model.save_pretrained(tmp_path / "first")
    again = type(model).from_pretrained(tmp_path / "first")
    heads = hc.find_heads(again)
    hc.remove_heads(again, HeadMask.from_names(heads, heads.names[::2]))
    again.save_pretrained(tmp_path / "second")
    loaded = type(model).from_pretrained(tmp_path / "second")
    assert hc.find_heads(loaded).names == heads.names[::2]
    assert difference(run(loaded, inputs), run(again, inputs)) == 0


def test_the_base_model_loads_from_a_folder_with_a_head(tmp_path: Path) -> None:
    model = pruned("bert")
    model.save_pretrained(tmp_path)
    loaded = AutoModel.from_pretrained(tmp_path)
    assert hc.find_heads(loaded).names == hc.find_heads(model).names
    assert torch.equal(
        loaded.encoder.layer[0].attention.self.query.weight,
        model.bert.encoder.layer[0].attention.self.query.weight,
    )


def test_the_encoder_alone_loads_from_an_encoder_decoder(tmp_path: Path) -> None:
    model = pruned("t5")
    model.save_pretrained(tmp_path)
    encoder = transformers.T5EncoderModel.from_pretrained(tmp_path)
    names = [name for name in hc.find_heads(model).names if name.startswith("encoder.")]
    assert list(hc.find_heads(encoder).names) == names


def test_tied_weights_stay_tied_after_reload(tmp_path: Path) -> None:
    model = pruned("gpt2")
    model.save_pretrained(tmp_path)
    loaded = type(model).from_pretrained(tmp_path)
    assert loaded.lm_head.weight is loaded.transformer.wte.weight


def test_only_safetensors_and_json_are_written(tmp_path: Path) -> None:
    pruned("bert", "empty_first_block").save_pretrained(tmp_path)
    assert {file.suffix for file in tmp_path.iterdir()} == {".safetensors", ".json"}
    with safe_open(tmp_path / "model.safetensors", "pt") as weights:
        emptied = weights.get_slice("bert.encoder.layer.0.attention.self.query.weight")
    assert emptied.get_shape() == [0, 32]


@pytest.mark.parametrize(
    "kind", [pytest.param("half", marks=pytest.mark.slow), "empty_first_block"]
)
def test_loading_without_headcount_fails_loudly(kind: str, tmp_path: Path) -> None:
    pruned("bert", kind).save_pretrained(tmp_path)
    code = "import sys, transformers; transformers.AutoModel.from_pretrained(sys.argv[1])"
    ended = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True
    )
    assert ended.returncode != 0
    assert "mismatch" in ended.stderr.lower()


def write_as_version_4(folder: Path, removed: dict[int, list[int]]) -> None:
    """Write the configuration as transformers v4 did, which knew the removed heads by layer."""
    file = folder / "config.json"
    config = json.loads(file.read_text())
    del config["quantization_config"]
    config["pruned_heads"] = {str(layer): heads for layer, heads in removed.items()}
    file.write_text(json.dumps(config))


@pytest.mark.parametrize("name", ["bert", "distilbert", "gpt2", "vit"])
def test_a_folder_pruned_by_transformers_4_loads(name: str, tmp_path: Path) -> None:
    model = build(name)
    heads = hc.find_heads(model)
    removed = {0: [0, 3], 2: [1]}
    gone = {heads.blocks[layer].offset + head for layer, hs in removed.items() for head in hs}
    hc.remove_heads(model, HeadMask.from_indices(heads, set(heads.indices) - gone))
    model.save_pretrained(tmp_path / "old")
    write_as_version_4(tmp_path / "old", removed)
    loaded = type(model).from_pretrained(tmp_path / "old")
    assert same_weights(loaded, model)
    loaded.save_pretrained(tmp_path / "new")
    assert same_weights(type(model).from_pretrained(tmp_path / "new"), model)


def test_a_config_for_another_size_is_refused(tmp_path: Path) -> None:
    model = pruned("bert")
    model.save_pretrained(tmp_path)
    file = tmp_path / "config.json"
    config = json.loads(file.read_text())
    mask = config["quantization_config"]["mask"]
    mask["blocks"][1]["heads"], mask["of"] = 6, 14
    file.write_text(json.dumps(config))
    with pytest.raises(hc.HeadcountError, match=r"6 heads in encoder\.1, but .* built with 4"):
        type(model).from_pretrained(tmp_path)


def test_a_config_that_disagrees_with_the_weights_is_refused(tmp_path: Path) -> None:
    model = pruned("bert")
    model.save_pretrained(tmp_path)
    file = tmp_path / "config.json"
    config = json.loads(file.read_text())
    mask = config["quantization_config"]["mask"]
    mask["kept"] += 4 - len(mask["blocks"][1]["kept"])
    mask["blocks"][1]["kept"] = [0, 1, 2, 3]
    file.write_text(json.dumps(config))
    with pytest.raises(RuntimeError, match="ignore_mismatched_sizes"):
        type(model).from_pretrained(tmp_path)


def test_a_version_4_config_for_another_model_is_refused(tmp_path: Path) -> None:
    model = pruned("bert")
    model.save_pretrained(tmp_path)
    write_as_version_4(tmp_path, {7: [0]})
    with pytest.raises(hc.HeadcountError, match="layer 7, which this model does not have"):
        type(model).from_pretrained(tmp_path)
