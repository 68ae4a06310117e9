from __future__ import annotations

from pathlib import Path

import datasets
import pytest
from datasets import Dataset, DatasetDict

from headcount.tasks.splits import open_splits
from tests.tasks.tiny_text import mistake, write_table

ONE = {"text": ["one"], "label": ["a"]}
TWO = {"text": ["two"], "label": ["b"]}


def test_parts_are_named_after_their_files(tmp_path: Path) -> None:
    for name in ("train_subset.tsv.gz", "dev.csv", "data/test-00000-of-00001.parquet"):
        write_table(tmp_path / name, ONE)
    (tmp_path / "README.md").write_text("no table")
    splits = open_splits(str(tmp_path))
    assert sorted(splits.readers) == ["dev", "test", "train_subset"]
    assert splits.find("train") == "train_subset"
    assert splits.find("validation", "dev") == "dev"
    assert splits.find("tes") is None
    assert splits.read("test")[1].columns == ONE


def test_shards_are_one_table(tmp_path: Path) -> None:
    write_table(tmp_path / "train-00000-of-00002.parquet", ONE)
    write_table(tmp_path / "train-00001-of-00002.parquet", TWO)
    table = open_splits(str(tmp_path)).read("train")[1]
    assert table.columns == {"text": ["one", "two"], "label": ["a", "b"]}


def test_shards_with_other_columns_are_told(tmp_path: Path) -> None:
    write_table(tmp_path / "train-00000-of-00002.parquet", ONE)
    write_table(tmp_path / "train-00001-of-00002.parquet", {"text": ["two"]})
    with mistake("must have the same columns"):
        open_splits(str(tmp_path)).read("train")


def test_an_unpacked_file_goes_before_the_packed_one(tmp_path: Path) -> None:
    write_table(tmp_path / "train.tsv", ONE)
    write_table(tmp_path / "train.tsv.gz", TWO)
    assert open_splits(str(tmp_path)).read("train")[1].columns == ONE


def test_two_files_of_one_name_are_told(tmp_path: Path) -> None:
    write_table(tmp_path / "train.tsv", ONE)
    write_table(tmp_path / "train.csv", TWO)
    splits = open_splits(str(tmp_path))
    with mistake("train.csv and train.tsv have the same name .* name the one"):
        splits.read("train")
    assert splits.read("train.csv")[1].columns == TWO


def test_several_parts_that_may_be_meant_are_told(tmp_path: Path) -> None:
    write_table(tmp_path / "train_a.tsv", ONE)
    write_table(tmp_path / "train_b.tsv", ONE)
    with mistake("several parts that may be train: train_a, train_b; name"):
        open_splits(str(tmp_path)).find("train")


def test_a_file_may_be_anywhere(tmp_path: Path) -> None:
    write_table(tmp_path / "data" / "train.csv", ONE)
    elsewhere = write_table(tmp_path / "elsewhere" / "hard.jsonl", TWO)
    splits = open_splits(str(tmp_path / "data" / "train.csv"))
    assert splits.read(str(elsewhere))[0] == "hard"
    with mistake("there is no file nowhere.csv .* its parts are train"):
        splits.read("nowhere.csv")


def test_two_evaluation_sets_of_one_name_are_told(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        write_table(tmp_path / folder / "dev.csv", ONE)
    splits = open_splits(str(tmp_path / "a"))
    with mistake("two evaluation sets are called dev"):
        splits.read_evaluation(["dev", str(tmp_path / "b" / "dev.csv")])


@pytest.mark.parametrize("data", ["./nowhere", "/nowhere/data", "train.csv", "data/train.tsv.gz"])
def test_a_path_to_nothing_is_told(data: str) -> None:
    with mistake(f"there is no file or folder {data}; check the path"):
        open_splits(data)


def test_a_folder_without_tables_is_told(tmp_path: Path) -> None:
    with mistake("has no tables: no file ends in .csv.* it has no folders; give the folder"):
        open_splits(str(tmp_path))
    write_table(tmp_path / "news" / "train.csv", ONE)
    with mistake("it has news; give the folder"):
        open_splits(str(tmp_path))


def test_a_saved_data_set_is_read(tmp_path: Path) -> None:
    data = DatasetDict(train=Dataset.from_dict(ONE), validation=Dataset.from_dict(TWO))
    data.save_to_disk(str(tmp_path / "saved"))
    splits = open_splits(str(tmp_path / "saved"))
    assert sorted(splits.readers) == ["train", "validation"]
    assert splits.read("validation")[1].columns == TWO


def test_a_damaged_saved_data_set_is_told(tmp_path: Path) -> None:
    (tmp_path / "dataset_dict.json").write_text("{")
    with mistake("dataset_dict.json but cannot be loaded"):
        open_splits(str(tmp_path))


def test_the_hub_out_of_reach_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with mistake("no-one/nothing is no file or folder here, .* from the hub: .*; give a folder"):
        open_splits("no-one/nothing", config="mnli")
