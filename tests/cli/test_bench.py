"""`headcount bench` as a person uses it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from transformers import BertConfig, BertForMaskedLM, BertForSequenceClassification

import headcount as hc
from headcount import HeadMask
from headcount.analysis import load_analysis
from tests.tiny import build, family_named


def test_command_writes_table_figure_and_data(tmp_path: Path, headcount: Any) -> None:
    build("bert").save_pretrained(tmp_path / "whole")
    small = build("bert")
    hc.remove_heads(small, HeadMask.random(hc.find_heads(small), 4))
    small.save_pretrained(tmp_path / "small")
    options = ("--batch-size", "2", "--length", "5", "--rounds", "3", "--output", tmp_path / "out")
    ended = headcount("bench", tmp_path / "whole", tmp_path / "small", *options)
    assert ended.code == 0
    assert "12/12" in ended.out and "4/12" in ended.out and "ideal" in ended.out
    table = pd.read_csv(tmp_path / "out" / "table.csv")
    files = [next((tmp_path / n).glob("*.safetensors")).stat().st_size for n in ("whole", "small")]
    assert list(table["file_bytes"]) == files
    read = load_analysis(tmp_path / "out")
    assert len(read.table()) == 2
    assert (tmp_path / "out" / "speed.svg").is_file()


def test_command_of_one_model_speaks_json(tmp_path: Path, headcount: Any) -> None:
    build("vit").save_pretrained(tmp_path / "whole")
    options = ("--batch-size", "1", "--keep", "0.5", "--masks", "1", "--rounds", "3", "--json")
    ended = headcount("bench", tmp_path / "whole", "--random-weights", *options)
    found = json.loads(ended.out)
    assert [one["keep"] for one in found["cut"]] == [6]
    assert found["machine"]["versions"]["torch"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("whole", "whole"), "given twice"),
        (("whole", "other", "--keep", "3"), "--keep"),
        (("whole", "--task", "mnli", "--length", "9"), "its own lengths"),
        (("whole", "--length", "99"), "32 tokens"),
    ],
)
def test_bad_input_is_told(
    arguments: tuple[str, ...],
    words: str,
    tmp_path: Path,
    headcount: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    build("bert").save_pretrained("whole")
    ended = headcount("bench", *arguments)
    assert ended.code == 2
    assert words in ended.err


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"vocab_size": 60}, "word_embeddings.weight is 60 × 32, but that of whole is 50 × 32"),
        ({"hidden_size": 64}, "word_embeddings.weight is 50 × 64"),
        ({"max_position_embeddings": 8}, "position_embeddings.weight is 8 × 32"),
        ({"num_hidden_layers": 2}, "is missing, but"),
        ({"num_attention_heads": 2}, "number of heads in encoder.0 is 2"),
    ],
)
def test_models_that_differ_in_more_than_heads_are_not_measured(
    changed: dict[str, int],
    words: str,
    tmp_path: Path,
    headcount: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    whole = build("bert")
    whole.save_pretrained("whole")
    BertForMaskedLM(BertConfig(**family_named("bert").settings | changed)).save_pretrained("other")
    ended = headcount("bench", "whole", "other", "--batch-size", "1", "--length", "5")
    assert ended.code == 2
    assert words in ended.err and "pruned from the same one" in ended.err


def test_models_of_two_tasks_are_not_measured(
    tmp_path: Path, headcount: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = BertConfig(**family_named("bert").settings)
    BertForMaskedLM(config).save_pretrained("whole")
    for name, labels in (("two", 2), ("three", 3)):
        config.num_labels = labels
        BertForSequenceClassification(config).save_pretrained(name)
    ended = headcount("bench", "whole", "two", "--batch-size", "1", "--length", "5")
    assert ended.code == 2
    assert "its class is BertForSequenceClassification" in ended.err
    ended = headcount("bench", "two", "three", "--batch-size", "1", "--length", "5")
    assert ended.code == 2
    assert "classifier.weight is 3 × 32" in ended.err


def test_a_task_gives_its_own_lengths(
    encoder: Path,
    tables: Path,
    headcount: Any,
) -> None:
    ended = headcount(
        "bench", encoder, "--task", "classification", "--data", tables, "--batch-size", "4",
        "--keep", "2", "--masks", "1", "--rounds", "3", "--json",
    )  # fmt: skip
    (cut,) = json.loads(ended.out)["cut"]
    assert cut["batch"] == 4
    assert 6 <= cut["length"] <= 12  # three to nine words, one more, and two special tokens
