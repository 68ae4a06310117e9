"""`headcount bench` as a person uses it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import headcount as hc
from headcount import HeadMask
from headcount.analysis import load_analysis
from tests.tiny import build


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
