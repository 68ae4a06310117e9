"""A user's mistake is told in one sentence, and the model stays as it was."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers
from torch import nn

import headcount as hc
from headcount import HeadMask
from tests.tiny import build, difference, family_named, mask_for, run


def mistake(says: str) -> Any:
    return pytest.raises(hc.HeadcountError, match=says)


def test_a_mask_for_another_model_is_refused() -> None:
    model, mask = build("bert"), mask_for(build("roberta"), "half")
    with mistake("mask is for roberta .* the model is bert"):
        hc.remove_heads(model, mask)
    with mistake("mask is for roberta"), hc.masked(model, mask):
        pass
    assert len(hc.find_heads(model)) == 12


def test_a_mask_for_another_size_is_refused() -> None:
    settings = family_named("bert").settings | {"num_hidden_layers": 2}
    small = transformers.BertForMaskedLM(transformers.BertConfig(**settings))
    with mistake("12 heads in 3 blocks, but the model is bert with 8 heads in 2 blocks"):
        hc.remove_heads(small, mask_for(build("bert"), "half"))


def test_masks_of_different_models_do_not_mix() -> None:
    a, b = mask_for(build("bert"), "half"), mask_for(build("roberta"), "half")
    for operation in ("__and__", "__or__", "__sub__", "__xor__", "__le__", "__lt__", "overlap"):
        with mistake("different models"):
            getattr(a, operation)(b)


@pytest.mark.parametrize(
    "name", ["encoder.3.0", "encoder.0.4", "decoder.0.0", "", "0", "encoder.0"]
)
def test_an_unknown_name_is_refused(name: str) -> None:
    with mistake("there is no head .*encoder.0.0 to encoder.2.3"):
        HeadMask.from_names(hc.find_heads(build("bert")), [name])


def test_a_repeated_name_is_refused() -> None:
    with mistake("'encoder.0.1' is named twice"):
        HeadMask.from_names(hc.find_heads(build("bert")), ["encoder.0.1", "encoder.0.1"])


@pytest.mark.parametrize("index", [-1, 12, 100])
def test_an_unknown_index_is_refused(index: int) -> None:
    heads = hc.find_heads(build("bert"))
    with mistake("from 0 to 11"):
        HeadMask.from_indices(heads, [index])
    with mistake("from 0 to 11"):
        heads.name(index)


@pytest.mark.parametrize("keep", [-1, 13, 1.5, -0.5, float("nan"), float("inf")])
def test_an_impossible_number_to_keep_is_refused(keep: float) -> None:
    with mistake("cannot keep .* of 12 heads"):
        HeadMask.random(hc.find_heads(build("bert")), keep=keep)


def test_a_removed_head_cannot_be_kept() -> None:
    model, inputs = build("bert"), family_named("bert").inputs()
    heads = hc.find_heads(model)
    hc.remove_heads(model, HeadMask.from_names(heads, ["encoder.0.1", "encoder.1.2"]))
    before = run(model, inputs)
    revenant = HeadMask.from_names(heads, ["encoder.0.1", "encoder.2.0"])
    with mistake("keeps encoder.2.0, which was removed"):
        hc.remove_heads(model, revenant)
    with mistake("keeps encoder.2.0, which was removed"), hc.masked(model, revenant):
        pass
    assert difference(run(model, inputs), before) == 0


@pytest.mark.parametrize("shape", [(11,), (13,), (0,), (), (12, 2), (2, 2, 12)], ids=str)
def test_gates_of_a_wrong_shape_are_refused(shape: tuple[int, ...]) -> None:
    model = build("bert")
    with mistake("gates have the shape .* 12 heads"), hc.masked(model, torch.ones(shape)):
        pass


def test_gates_for_another_batch_are_refused() -> None:
    model, inputs = build("bert"), family_named("bert").inputs()
    with mistake("gates for 3 examples, .* has 2"), hc.masked(model, torch.ones(3, 12)):
        run(model, inputs)


def test_a_model_without_attention_is_refused() -> None:
    with mistake("no attention heads were found in Sequential"):
        hc.find_heads(nn.Sequential(nn.Linear(4, 4), nn.ReLU()))


def test_a_convolutional_model_is_refused() -> None:
    config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8], depths=[1])
    with mistake("no attention heads were found in ResNetModel"):
        hc.find_heads(transformers.ResNetModel(config))


def test_what_is_no_model_is_refused() -> None:
    with mistake("this is a str"):
        hc.find_heads("bert-base-uncased")  # type: ignore[arg-type]


def test_a_quantised_model_is_refused() -> None:
    model = build("bert")
    mask = mask_for(model, "half")
    model.hf_quantizer = SimpleNamespace(
        quantization_config=SimpleNamespace(quant_method="bitsandbytes")
    )
    for touch in (hc.find_heads, lambda m: hc.remove_heads(m, mask)):
        with mistake("quantised .bitsandbytes."):
            touch(model)
    with mistake("quantised .bitsandbytes."), hc.masked(model, mask):
        pass


@pytest.mark.parametrize(
    "text, says",
    [
        ("not json", "not valid JSON"),
        ("[]", "not a head mask"),
        ("{}", "not a head mask"),
        ('{"model_type": "bert", "blocks": [{"name": "encoder.0"}]}', "not a head mask"),
        ('{"model_type": "bert", "blocks": 3}', "not a head mask"),
    ],
)
def test_a_broken_mask_file_is_refused(text: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "mask.json"
    path.write_text(text)
    with mistake(says):
        HeadMask.load(path)


@pytest.mark.parametrize("kept", [[0, 0], [4], [-1]])
def test_a_mask_file_with_impossible_heads_is_refused(kept: list[int], tmp_path: Path) -> None:
    data = mask_for(build("bert"), "half").to_dict()
    data["blocks"][1]["kept"] = kept
    path = tmp_path / "mask.json"
    path.write_text(json.dumps(data))
    with mistake("block encoder.1 keeps heads .* from 0 to 3"):
        HeadMask.load(path)


def test_a_missing_mask_file_is_told(tmp_path: Path) -> None:
    with mistake("cannot read the mask .*nowhere.json"):
        HeadMask.load(tmp_path / "nowhere.json")
