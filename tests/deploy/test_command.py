"""`headcount export`, from a folder to a folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, BertForSequenceClassification

from headcount import HeadcountError, HeadMask, find_heads, remove_heads
from headcount.deploy.write import Export
from tests.cli.conftest import headcount
from tests.small_task import save_encoder

__all__ = ["headcount"]


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that says good or bad, and has an empty block and one with a head of two."""
    folder = save_encoder(tmp_path_factory.mktemp("classifier"))
    config = AutoConfig.from_pretrained(folder)
    config.num_hidden_layers, config.id2label = 2, {0: "bad", 1: "good"}
    config.label2id = {"bad": 0, "good": 1}
    model = BertForSequenceClassification(config)
    for parameter in model.parameters():  # so that its answers are not all the same
        parameter.data *= 15 if parameter.dim() > 1 else 1
    remove_heads(model, HeadMask.from_indices(find_heads(model), [3]))
    model.save_pretrained(folder)
    return folder


def test_export_with_its_cost(
    classifier: Path, tables: Path, tmp_path: Path, headcount: Any
) -> None:
    output = tmp_path / "exported"
    data = ("--task", "classification", "--data", tables)
    done = headcount("export", classifier, "--output", output, "--quantise", "int8", *data)
    assert done.code == 0
    record = json.loads((output / "export.json").read_text())
    graph = record["graphs"]["model"]
    assert list(graph["inputs"]) == ["input_ids", "attention_mask"]  # all that the tokenizer makes
    assert graph["difference"] < 1e-4
    assert {sizes["batch"] for sizes in graph["checked_on"]} == {1, 2, 3, 4}
    whole, onnx, int8 = record["evaluation"]
    assert (whole["name"], onnx["name"], int8["name"]) == ("model", "onnx", "int8")
    assert whole["metrics"] == onnx["metrics"]
    assert whole["metrics"]["validation"]["macro_f1"] > 0.34  # both answers occur
    assert onnx["difference"] < 1e-5 < int8["difference"]
    assert {file.name for file in output.iterdir()} == {
        "model.onnx", "model_int8.onnx", "config.json", "export.json",
        "tokenizer.json", "tokenizer_config.json",
    }  # fmt: skip
    assert "examples/s" in done.out and "validation accuracy" in done.out


def test_bad_input(classifier: Path, tmp_path: Path, headcount: Any) -> None:
    output = tmp_path / "exported"
    for arguments, why in (
        ((classifier, "--output", tmp_path), "exists already"),
        ((classifier, "--output", output, "--quantise", "int4"), "'int4', expected int8"),
        ((classifier, "--output", output, "--format", "tflite"), "expected onnx or torch"),
        ((classifier, "--output", output, "--task", "sst2"), "give --data"),
        ((tmp_path, "--output", output), "it has no config.json"),
    ):
        done = headcount("export", *arguments)
        assert done.code == 2 and why in done.err
    assert not output.exists()


def test_an_old_torch_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", "2.6.0+cpu")
    with pytest.raises(HeadcountError, match=r"exporting needs torch 2\.9 or newer, found 2\.6"):
        Export()
