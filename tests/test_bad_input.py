"""A user's mistake is told in one sentence, and the model stays as it was."""

from __future__ import annotations

import copy
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

EVIDENCE = Path(__file__).parents[1] / "evidence"


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


SMALL = {
    "format": "headcount mask 1",
    "model_type": "bert",
    "kept": 3,
    "of": 8,
    "blocks": [
        {"name": "encoder.0", "heads": 4, "kept": [0, 2]},
        {"name": "encoder.1", "heads": 4, "kept": [3]},
    ],
}


def test_a_mask_file_is_what_was_written(tmp_path: Path) -> None:
    (tmp_path / "mask.json").write_text(json.dumps(SMALL))
    mask = HeadMask.load(tmp_path / "mask.json")
    assert mask.names == ("encoder.0.0", "encoder.0.2", "encoder.1.3")
    assert mask.to_dict() == SMALL


@pytest.mark.parametrize(
    ("place", "value", "says"),
    [
        (("format",), "headcount mask 2", "'headcount mask 2' as format, expected 'headcount mask"),
        (("format",), None, "None as format, expected"),
        (("model_type",), 3, "3 as model_type, expected text"),
        (("model_type",), "\x1b[31m", "as model_type, expected text to print"),
        (("kept",), 2, "says that 2 of 8 heads are kept, but its blocks keep 3 of 8"),
        (("kept",), 3.0, "3.0 as kept, expected a whole number from 0"),
        (("of",), 9, "says that 3 of 9 heads are kept, but its blocks keep 3 of 8"),
        (("of",), True, "True as of, expected a whole number from 0"),
        (("blocks",), [], r"\[\] as blocks, expected a list of blocks"),
        (("blocks",), {}, "{} as blocks, expected a list of blocks"),
        (("blocks", 1), [], r"block 1 is \[\], expected keys and values"),
        (("blocks", 1, "name"), 1, "block 1 has 1 as name, expected text"),
        (("blocks", 1, "name"), "encoder.0", "two of its blocks have the same name"),
        (("blocks", 1, "heads"), 0, "block 1 has 0 as heads, expected a whole number from 1"),
        (("blocks", 1, "heads"), 4.0, "block 1 has 4.0 as heads, expected a whole number from 1"),
        (("blocks", 1, "heads"), float("inf"), "block 1 has inf as heads, expected a whole number"),
        (("blocks", 1, "heads"), 10**12, "1000000000004 heads, but no model has more than 1,048,5"),
        (("blocks", 1, "kept"), [0.9], r"\[0.9\] as kept, expected a list of whole numbers"),
        (("blocks", 1, "kept"), [True], r"\[True\] as kept, expected a list of whole numbers"),
        (("blocks", 1, "kept"), "02", "'02' as kept, expected a list of whole numbers"),
        (("blocks", 1, "kept"), {}, "{} as kept, expected a list of whole numbers"),
    ],
)
def test_a_mask_file_that_headcount_never_writes_is_refused(
    place: tuple[Any, ...], value: Any, says: str, tmp_path: Path
) -> None:
    data = copy.deepcopy(SMALL)
    inner: Any = data
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    (tmp_path / "mask.json").write_text(json.dumps(data))
    with mistake(says):
        HeadMask.load(tmp_path / "mask.json")


@pytest.mark.parametrize("text", ["[" * 200_000, "Infinity", "\ud800", '{"blocks": 1e999}'])
def test_a_file_that_is_no_mask_at_all_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "mask.json").write_bytes(text.encode("utf-8", "surrogatepass"))
    with mistake("not valid JSON|not a head mask"):
        HeadMask.load(tmp_path / "mask.json")


@pytest.mark.skipif(not EVIDENCE.is_dir(), reason="the source distribution has no evidence")
def test_every_mask_of_the_evidence_can_still_be_read() -> None:
    files = sorted(EVIDENCE.glob("*/masks.json"))
    masks = [mask for file in files for mask in json.loads(file.read_text()).values()]
    assert len(masks) > 100
    for mask in masks:
        assert HeadMask.from_dict(mask).to_dict() == mask


def test_a_mask_for_more_heads_than_any_model_has_is_refused() -> None:
    with mistake("no model has more than 1,048,576"):
        HeadMask("bert", (("encoder.0", 10**15),), frozenset())


@pytest.mark.parametrize("kept", [[0, 0], [4], [-1]])
def test_a_mask_file_with_impossible_heads_is_refused(kept: list[int], tmp_path: Path) -> None:
    data = mask_for(build("bert"), "half").to_dict()
    data["blocks"][1]["kept"] = kept
    path = tmp_path / "mask.json"
    path.write_text(json.dumps(data))
    with mistake("block encoder.1 keeps heads .* from 0 to 3"):
        HeadMask.load(path)


def test_a_missing_mask_file_is_told(tmp_path: Path) -> None:
    with mistake("cannot read the mask .*nowhere.json: there is no file"):
        HeadMask.load(tmp_path / "nowhere.json")
