"""`headcount prune --to`: other forms of the model, beside it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from safetensors import safe_open
from transformers import AutoModelForSequenceClassification, AutoTokenizer, LlamaConfig, LlamaModel

from tests.cli.conftest import headcount
from tests.deploy.conftest import needs_onnx
from tests.small_task import save_encoder

__all__ = ["headcount"]


@pytest.fixture
def grouped(tmp_path: Path) -> Path:
    """A decoder with two layers of eight heads, two to a key-value head."""
    folder = save_encoder(tmp_path / "grouped")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=40, num_hidden_layers=2,
        num_attention_heads=8, num_key_value_heads=4, pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    LlamaModel(config).save_pretrained(folder)
    return folder


def brief(grouped: Path, tables: Path) -> tuple[object, ...]:
    data = ("--task", "classification", "--data", tables, "--limit-train", 32)
    return (
        "prune",
        grouped,
        *data,
        "--method",
        "random",
        "--no-speed",
        "--epochs",
        1,
        "--base",
        grouped.parent / "base",
    )


@needs_onnx
def test_forms_are_beside_the_model(
    grouped: Path, tables: Path, tmp_path: Path, headcount: Any
) -> None:
    out = tmp_path / "out"
    even = ("--keep", 12, "--even", "--unit", "group", "--to", "plain,onnx")
    done = headcount(*brief(grouped, tables), *even, "--output", out)
    assert done.code == 0, done.err
    assert f"{out / 'plain'}: MistralForSequenceClassification" in done.out
    card = (out / "README.md").read_text()
    assert 'from_pretrained("FOLDER/plain")' in card and "### `onnx/`" in card
    config = json.loads((out / "plain" / "config.json").read_text())
    assert (config["num_attention_heads"], config["num_key_value_heads"]) == (6, 3)
    with safe_open(out / "plain" / "model.safetensors", "pt") as weights:
        assert weights.get_tensor("model.layers.0.self_attn.k_proj.weight").shape == (12, 32)
    assert (out / "plain" / "tokenizer.json").is_file() and (out / "onnx/onnx/model.onnx").is_file()
    AutoModelForSequenceClassification.from_pretrained(out / "plain")


def test_a_form_that_cannot_hold_it_leaves_the_model(
    grouped: Path, tables: Path, tmp_path: Path, headcount: Any
) -> None:
    out = tmp_path / "out"
    done = headcount(*brief(grouped, tables), "--keep", 7, "--to", "plain", "--output", out)
    assert done.code == 2 and "Traceback" not in done.err
    assert f"the model is in {out}, but plain cannot hold this model: decoder.0 has" in done.err
    assert (out / "model.safetensors").is_file() and not (out / "plain").exists()
    none = headcount(*brief(grouped, tables), "--keep", 7, "--to", "tflite", "--output", out / "2")
    assert none.code == 2 and "'tflite', expected one of plain" in none.err
    assert not (out / "2").exists()
