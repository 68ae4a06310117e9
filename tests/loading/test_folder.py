"""A model folder may hold anything: what is wrong with it is one sentence, and quickly."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModel

import headcount as hc
from headcount.atomic import refuse_bad_output
from headcount.loading.folder import (
    copy_companions,
    load_model,
    random_model,
)
from tests.tiny import build, mask_for


@pytest.fixture
def bert(tmp_path: Path) -> Path:
    build("bert").save_pretrained(tmp_path / "bert")
    return tmp_path / "bert"


@pytest.fixture
def pruned(tmp_path: Path) -> Path:
    model = build("bert")
    hc.remove_heads(model, mask_for(model, "half"))
    model.save_pretrained(tmp_path / "pruned")
    return tmp_path / "pruned"


def change(folder: Path, **values: Any) -> str:
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | values))
    return str(folder)


@pytest.mark.parametrize("read", [load_model, random_model])
@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("architectures", [None], "architectures"),
        ("architectures", "BertModel", "architectures"),
        ("architectures", {}, "architectures"),
        ("architectures", ["Trainer"], r"\['Trainer'\] as architectures, which is no model"),
        ("architectures", ["models"], r"\['models'\] as architectures, which is no model"),
        ("architectures", ["GPT2Model"], r"\['GPT2Model'\] as archit.*, which is no bert model"),
        ("quantization_config", 1, "1 as quantization_config, expected keys and values"),
        ("quantization_config", "x", "'x' as quantization_config, expected keys and values"),
        ("quantization_config", [], r"\[\] as quantization_config, expected keys and values"),
        ("quantization_config", {}, r"this model is quantised \(None\)"),
        ("quantization_config", {"quant_method": "headcount"}, "pruned_heads .* is None, expected"),
        ("pruned_heads", True, "pruned_heads .* is True, expected lists of heads by layer"),
        ("pruned_heads", {"0": ["1"]}, r"\['1'\] for layer 0, expected numbers from 0 to 3"),
        ("pruned_heads", {"0": [1, 4, 7]}, r"\[1, 4, 7\] for layer 0, expected numbers from 0"),
        ("pruned_heads", {"0": [-1]}, r"\[-1\] for layer 0, expected numbers from 0 to 3"),
        ("pruned_heads", {"0": [True]}, r"\[True\] for layer 0, expected numbers from 0 to 3"),
        ("pruned_heads", {"0": 1}, "has 1 for layer 0, expected numbers from 0 to 3"),
        ("pruned_heads", {"-1": [0]}, "has '-1' as a layer, expected a number from 0"),
        ("pruned_heads", {"x": [0]}, "has 'x' as a layer, expected a number from 0"),
        ("pruned_heads", {"0": [1], "00": [2]}, "names a layer twice"),
        ("num_attention_heads", 0, "cannot load a model from"),
        ("num_attention_heads", 10**12, "as num_attention_heads, expected at most 10,000"),
        ("num_hidden_layers", 10**9, "1000000000 as num_hidden_layers, expected at most 10,000"),
        ("text_config", {"num_layers": 10**9}, "1000000000 as num_layers, expected at most"),
        ("num_labels", 10**9, "1000000000 as num_labels, expected at most 1,000,000"),
        ("hidden_size", 10**9, "1000000000 as hidden_size, expected at most 10,000,000"),
        ("hidden_act", "magic", "cannot load a model from .*: .*magic"),
        ("hidden_size", "x", "cannot load a model from "),
        ("model_type", None, "it names no model_type"),
        ("model_type", "magic", "cannot load a model from"),
    ],
)
def test_a_wrong_configuration_is_one_sentence(
    read: Any, key: str, value: Any, says: str, bert: Path
) -> None:
    with pytest.raises(hc.HeadcountError, match=says) as told:
        read(change(bert, **{key: value}))
    assert len(str(told.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (True, "pruned_heads .* is True"),
        ({"0": [1, 4, 7]}, r"\[1, 4, 7\] for layer 0, expected numbers from 0 to 3"),
    ],
)
def test_transformers_is_told_about_wrong_heads_of_version_4(
    value: Any, says: str, bert: Path
) -> None:
    with pytest.raises(hc.HeadcountError, match=says):
        AutoModel.from_pretrained(change(bert, pruned_heads=value))


def test_random_weights_have_the_heads_that_version_4_left(bert: Path) -> None:
    model = random_model(change(bert, pruned_heads={"1": [0, 3]}))
    assert hc.find_heads(model).block("encoder.1").heads == (1, 2)
    assert len(hc.find_heads(model)) == 10


@pytest.mark.parametrize("read", [load_model, random_model, AutoModel.from_pretrained])
@pytest.mark.parametrize("heads", [10**12, 5, 0, -4, 4.0, True, "4", None])
def test_a_wrong_number_of_heads_is_told_before_they_are_counted(
    read: Any, heads: Any, pruned: Path
) -> None:
    entry = json.loads((pruned / "config.json").read_text())["quantization_config"]
    entry["mask"]["blocks"][1]["heads"] = heads
    with pytest.raises(hc.HeadcountError, match=r"kept heads in config\.json"):
        read(change(pruned, quantization_config=entry))


@pytest.mark.parametrize("mask", [[], {}, 0, "", "mask", 1, [1], {"blocks": []}])
def test_an_entry_without_a_mask_is_refused(mask: Any, pruned: Path) -> None:
    entry = {"quant_method": "headcount", "mask": mask}
    with pytest.raises(hc.HeadcountError, match="this is not a head mask"):
        load_model(change(pruned, quantization_config=entry))


@pytest.mark.parametrize("text", ["[" * 200_000, '{"a":' * 200_000, '{"model_type": "\\ud800"}'])
def test_json_that_nobody_wrote_is_refused(text: str, bert: Path) -> None:
    (bert / "config.json").write_text(text)
    with pytest.raises(hc.HeadcountError, match="not valid JSON"):
        load_model(str(bert))


class Malice:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (os.environ["HARM"],)


def test_weights_that_run_code_are_refused(
    bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HARM", str(tmp_path / "harm"))
    (bert / "model.safetensors").unlink()
    torch.save({"a": Malice()}, bert / "pytorch_model.bin", pickle_module=pickle)
    with pytest.raises(hc.HeadcountError, match="a pickle that holds more than weights, which is"):
        load_model(str(bert))
    assert not (tmp_path / "harm").exists()


@pytest.mark.parametrize("read", [load_model, random_model])
def test_code_in_a_folder_is_not_run_and_nobody_is_asked(read: Any, bert: Path) -> None:
    (bert / "evil.py").write_text("raise SystemExit('run')")
    automatic = {"AutoConfig": "evil.Config", "AutoModel": "evil.Model"}
    with pytest.raises(hc.HeadcountError, match=r"cannot load a model from .* custom code"):
        read(change(bert, model_type="evil", auto_map=automatic))
    assert len(hc.find_heads(read(change(bert, model_type="bert")))) == 12


def test_a_name_that_no_folder_can_have_is_told() -> None:
    with pytest.raises(hc.HeadcountError, match="cannot be the name of a model: File name too"):
        load_model("/" + "a" * 5000)


def test_a_link_out_of_the_folder_is_not_followed(bert: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("mine")
    (bert / "vocab.txt").write_text("words")
    (bert / "vocab_stolen").symlink_to(tmp_path / "secret")
    (bert / "vocab_by_detour").symlink_to(bert / "vocab_stolen")
    (bert / "vocab_inside").symlink_to("vocab.txt")
    target = tmp_path / "target"
    target.mkdir()
    assert copy_companions(str(bert), target) == ("vocab_by_detour", "vocab_stolen")
    assert sorted(path.name for path in target.iterdir()) == ["vocab.txt", "vocab_inside"]
    assert all(path.read_text() == "words" and not path.is_symlink() for path in target.iterdir())


def test_the_links_of_the_hubs_cache_are_followed(tmp_path: Path) -> None:
    snapshot = tmp_path / "models--bert" / "snapshots" / "abc"
    blobs = tmp_path / "models--bert" / "blobs"
    for folder in (snapshot, blobs, tmp_path / "target"):
        folder.mkdir(parents=True)
    (tmp_path / "secret").write_text("mine")
    (blobs / "123").write_text("words")
    (blobs / "456").symlink_to(tmp_path / "secret")
    (snapshot / "vocab.txt").symlink_to("../../blobs/123")
    (snapshot / "merges.txt").symlink_to("../../blobs/456")
    assert copy_companions(str(snapshot), tmp_path / "target") == ("merges.txt",)
    assert (tmp_path / "target" / "vocab.txt").read_text() == "words"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("x" * 250, "has 250 bytes, expected at most 200; give the output a shorter"),
        ("ж" * 120, "has 240 bytes"),
        ("caf\udce9", "is not text in UTF-8"),
        ("x" * 300 + "/out", "cannot be written: File name too long"),
        ("a\0b", "cannot be written: embedded null"),
    ],
)
def test_a_name_that_no_output_can_have_is_told(name: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(hc.HeadcountError, match=says):
        refuse_bad_output(tmp_path / name)


def test_an_output_that_is_a_link_to_nothing_is_told(tmp_path: Path) -> None:
    (tmp_path / "out").symlink_to(tmp_path / "nowhere")
    with pytest.raises(hc.HeadcountError, match=r"out is a link to .*nowhere, which is not there"):
        refuse_bad_output(tmp_path / "out")
    assert not (tmp_path / "nowhere").exists()


def test_a_usual_output_is_taken(tmp_path: Path) -> None:
    for name in ("out", "x" * 200, "жук", "none/out", "a b\n"):
        refuse_bad_output(tmp_path / name)
    refuse_bad_output(tmp_path)  # what is there is for others to judge
