"""All eight tasks in both layouts: GLUE's own TSV files, and Parquet files as on the hub."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from datasets import ClassLabel, Dataset, Features, Value

from headcount.tasks.base import DataSettings
from headcount.tasks.classification import GlueTask
from headcount.tasks.glue import GLUE
from tests.tasks.tiny_text import mistake, write_table

Columns = dict[str, list[Any]]


@dataclass(frozen=True)
class Layout:
    """A task as it lies on disk.

    Attributes:
        folder: in GLUE's root.
        original: the columns of GLUE's files.
        hub: the columns on the hub; labels are numbers.
        labels: that must come out.
        metric: that decides.
    """

    folder: str
    original: Columns
    hub: Columns
    labels: list[str]
    metric: str = "accuracy"


A, B = ["the sailors rode", 'a "horse" jumps'], ["the breeze", "over a null"]
ID = ["0", "1"]
LAYOUTS = {
    "mnli": Layout(
        "MNLI",
        {"index": ID, "genre": ID, "sentence1": A, "sentence2": B, "label1": ["neutral"] * 2,
         "gold_label": ["contradiction", "entailment"]},
        {"premise": A, "hypothesis": B, "label": [2, 0], "idx": [0, 1]},
        ["contradiction", "entailment"],
    ),
    "sst2": Layout(
        "SST-2",
        {"sentence": A, "label": ["1", "0"]},
        {"sentence": A, "label": [1, 0], "idx": [0, 1]},
        ["positive", "negative"],
    ),
    "cola": Layout(
        "CoLA",
        {"gj04": ["gj04"], "1": ["0"], "": ["*"], A[0]: [A[1]]},  # no header: a row in its place
        {"sentence": A, "label": [1, 0], "idx": [0, 1]},
        ["acceptable", "unacceptable"],
        "matthews_correlation",
    ),
    "mrpc": Layout(
        "MRPC",
        {"\ufeffQuality": ["1", "0"], "#1 ID": ID, "#2 ID": ID, "#1 String": A, "#2 String": B},
        {"sentence1": A, "sentence2": B, "label": [1, 0], "idx": [0, 1]},
        ["equivalent", "not_equivalent"],
        "combined",
    ),
    "rte": Layout(
        "RTE",
        {"index": ID, "sentence1": A, "sentence2": B, "label": ["not_entailment", "entailment"]},
        {"sentence1": A, "sentence2": B, "label": [1, 0], "idx": [0, 1]},
        ["not_entailment", "entailment"],
    ),
    "qnli": Layout(
        "QNLI",
        {"index": ID, "question": A, "sentence": B, "label": ["not_entailment", "entailment"]},
        {"question": A, "sentence": B, "label": [1, 0], "idx": [0, 1]},
        ["not_entailment", "entailment"],
    ),
    "qqp": Layout(
        "QQP",
        {"id": ID, "qid1": ID, "qid2": ID, "question1": A, "question2": B,
         "is_duplicate": ["1", "0"]},
        {"question1": A, "question2": B, "label": [1, 0], "idx": [0, 1]},
        ["duplicate", "not_duplicate"],
        "combined",
    ),
    "stsb": Layout(
        "STS-B",
        {"index": ID, "genre": ID, "sentence1": A, "sentence2": B, "score": ["5.000", "1.25"]},
        {"sentence1": A, "sentence2": B, "label": [5.0, 1.25], "idx": [0, 1]},
        ["5.000", "1.25"],
        "combined",
    ),
}  # fmt: skip


def original(root: Path, name: str, gz: str = "") -> Path:
    folder = root / LAYOUTS[name].folder
    evaluation = ["dev_matched", "dev_mismatched"] if name == "mnli" else ["dev"]
    for part in ("train", *evaluation):
        write_table(folder / f"{part}.tsv{gz}", LAYOUTS[name].original)
    write_table(folder / "test.tsv", {"index": ["0"], "sentence": ["unlabelled"]})
    return folder


def hub(root: Path, name: str, named: bool) -> Path:
    columns = LAYOUTS[name].hub
    features = None
    if named and GLUE[name].labels:
        kinds = {key: Value("string") for key in columns} | {"idx": Value("int32")}
        features = Features(kinds | {"label": ClassLabel(names=list(GLUE[name].labels))})
    evaluation = ["_matched", "_mismatched"] if name == "mnli" else [""]
    (root / name).mkdir()
    for part in ("train", *(f"validation{end}" for end in evaluation)):
        data = Dataset.from_dict(columns, features=features)
        data.to_parquet(str(root / name / f"{part}-00000-of-00001.parquet"))
    return root / name


def check(task: GlueTask) -> None:
    layout = LAYOUTS[task.name]
    ends = ["_matched", "_mismatched"] if task.name == "mnli" else [""]
    assert list(task.evaluation) == [f"validation{end}" for end in ends]
    for examples in (task.train, *task.evaluation.values()):
        assert examples.texts == ((A, B) if len(examples.texts) == 2 else (A,))
        if task.name == "stsb":
            assert [float(value) for value in examples.labels] == [5.0, 1.25]
        else:
            assert examples.labels == layout.labels
    assert task.metric == layout.metric
    assert not any(task.dropped.values())


@pytest.mark.parametrize("gz", ["", ".gz"])
@pytest.mark.parametrize("name", GLUE)
def test_the_original_layout(name: str, gz: str, tmp_path: Path) -> None:
    folder = original(tmp_path, name, gz)
    check(GlueTask(name, DataSettings(str(tmp_path))))
    check(GlueTask(name, DataSettings(str(folder))))


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("name", GLUE)
def test_the_layout_of_the_hub(name: str, named: bool, tmp_path: Path) -> None:
    folder = hub(tmp_path, name, named)
    check(GlueTask(name, DataSettings(str(tmp_path))))
    check(GlueTask(name, DataSettings(str(folder))))


def test_longer_file_names_are_found(tmp_path: Path) -> None:
    folder = original(tmp_path, "mnli", ".gz")
    (folder / "train.tsv.gz").rename(folder / "train_subset.tsv.gz")
    (folder / "dev_mismatched.tsv.gz").rename(folder / "dev_mismatched_partial.tsv.gz")
    check(GlueTask("mnli", DataSettings(str(tmp_path))))


def test_the_microsoft_corpus_goes_with_its_own_test_file(tmp_path: Path) -> None:
    folder = original(tmp_path, "mrpc")
    (folder / "train.tsv").rename(folder / "msr_paraphrase_train.txt")
    with mistake("has no train of mrpc, only dev, msr_paraphrase_train, test"):
        GlueTask("mrpc", DataSettings(str(tmp_path)))  # it would train on what it is tested with
    (folder / "dev.tsv").rename(folder / "msr_paraphrase_test.txt")
    task = GlueTask("mrpc", DataSettings(str(tmp_path)))
    assert list(task.evaluation) == ["test"]
    assert task.train.labels == LAYOUTS["mrpc"].labels


def test_undecided_rows_are_dropped_and_counted(tmp_path: Path) -> None:
    folder = original(tmp_path, "mnli")
    columns = {"sentence1": [*A, "x"], "sentence2": [*B, "y"],
               "gold_label": ["neutral", "-", "entailment"]}  # fmt: skip
    write_table(folder / "dev_matched.tsv", columns)
    task = GlueTask("mnli", DataSettings(str(folder)))
    assert task.dropped == {"train": 0, "validation_matched": 1, "validation_mismatched": 0}
    assert task.evaluation["validation_matched"].texts[0] == [A[0], "x"]


def test_broken_rows_of_qqp_are_dropped_and_counted(tmp_path: Path) -> None:
    folder = original(tmp_path, "qqp")
    with (folder / "train.tsv").open("a") as file:
        file.write("2\t3\t4\n")
    assert GlueTask("qqp", DataSettings(str(folder))).dropped["train"] == 1


def test_files_can_be_named(tmp_path: Path) -> None:
    folder = original(tmp_path, "rte")
    hard = write_table(tmp_path / "hard.jsonl", LAYOUTS["rte"].original)
    task = GlueTask(
        "rte", DataSettings(str(folder), train="dev.tsv", evaluate=("train.tsv", str(hard)))
    )
    assert list(task.evaluation) == ["train", "hard"]
    assert task.train.source.endswith("dev.tsv")


def test_a_folder_of_something_else_is_told(tmp_path: Path) -> None:
    write_table(tmp_path / "news.csv", {"text": ["a"], "label": ["b"]})
    with mistake("has no train of mnli, only news; give the folder with GLUE's files"):
        GlueTask("mnli", DataSettings(str(tmp_path)))
    write_table(tmp_path / "train.csv", {"text": ["a"], "label": ["b"]})
    with mistake("has no validation_matched or dev_matched of mnli"):
        GlueTask("mnli", DataSettings(str(tmp_path)))


def test_a_wrong_column_and_a_wrong_label_are_told(tmp_path: Path) -> None:
    folder = original(tmp_path, "rte")
    with mistake("has no column 'question', it has index, sentence1"):
        GlueTask("qnli", DataSettings(str(folder)))
    with mistake("has the label 'not_entailment', but the labels are entailment, neutral"):
        GlueTask("mnli", DataSettings(str(folder), evaluate=("dev",)))
    with mistake("rte has its own labels"):
        GlueTask("rte", DataSettings(str(folder), labels=("yes", "no")))
    with mistake("rte has no options, but config was given"):
        GlueTask("rte", DataSettings(str(folder), options={"config": "rte"}))
