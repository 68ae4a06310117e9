"""`headcount export`, from a folder to a folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, BertForSequenceClassification

from headcount import HeadMask, find_heads, remove_heads
from headcount.deploy.graph_folder import _refuse_old_torch
from headcount.deploy.regular import NotHeldError
from tests.cli.conftest import headcount
from tests.deploy.conftest import needs_onnx
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


@needs_onnx
def test_export_with_its_cost(
    classifier: Path, tables: Path, tmp_path: Path, headcount: Any
) -> None:
    output = tmp_path / "exported"
    data = ("--task", "classification", "--data", tables)
    done = headcount(
        "export", classifier, "--to", "onnx", "--output", output, "--precision", "int8", *data
    )
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
    files = (file for file in output.rglob("*") if file.is_file())
    assert {file.relative_to(output).as_posix() for file in files} == {
        "onnx/model.onnx", "onnx/model_int8.onnx", "config.json", "export.json", "README.md",
        "tokenizer.json", "tokenizer_config.json",
    }  # fmt: skip
    assert "examples/s" in done.out and "validation accuracy" in done.out


@needs_onnx
def test_bad_input(classifier: Path, tmp_path: Path, headcount: Any) -> None:
    output = tmp_path / "exported"
    for arguments, why in (
        (("--to", "onnx", "--output", tmp_path), "exists already"),
        (
            ("--to", "onnx", "--output", output, "--precision", "int4"),
            "'int4', expected f32 or int8",
        ),
        (("--to", "tflite", "--output", output), "expected one of plain, remote-code"),
        (("--to", "onnx", "--output", output, "--task", "sst2"), "give --data"),
        (("--to", "plain", "--output", output, "--task", "sst2"), "leave out --task and --data"),
        (("--to", "onnx"), "an export needs --output, a new folder"),
        (("--output", output), "an export needs --to, one of its targets"),
        (("--to", "--output", output), "an export needs --to, one of its targets"),
        (("--to", "plain", "--output", output), "plain cannot hold this model: encoder.0 has no"),
    ):
        done = headcount("export", classifier, *arguments)
        assert done.code == 2 and why in done.err and done.err.count("\n") == 1
    done = headcount("export", tmp_path, "--to", "onnx", "--output", output)
    assert done.code == 2 and "it has no config.json" in done.err
    assert not output.exists()


def test_an_old_torch_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", "2.6.0+cpu")
    with pytest.raises(NotHeldError, match=r"it needs torch 2\.9 or newer, and this is 2\.6"):
        _refuse_old_torch()
