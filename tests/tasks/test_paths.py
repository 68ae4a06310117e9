"""Files that are given by their paths, from where the user is, need no folder of data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headcount.tasks.base import DataSettings, Task
from headcount.tasks.registry import make_task
from tests.tasks.test_images import data as images
from tests.tasks.text_data import captions, write, write_pairs
from tests.tasks.tiny_text import mistake, write_table

__all__ = ["images"]
ROWS = {"text": ["a b", "c", "d"], "label": ["no", "yes", "no"]}
PAIRS = {"sentence1": ["a"], "sentence2": ["b"], "label": ["entailment"]}
TRANSLATED = {"source": "de", "target": "en"}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's folder, with files that have the usual names and must not be read."""
    folder = tmp_path / "here"
    folder.mkdir()
    for decoy in ("train", "validation", "test"):
        (folder / f"{decoy}.csv").write_text("not,a\ntable")
        (folder / f"{decoy}.txt").write_text("never read\n")
    monkeypatch.chdir(folder)
    return folder


def make(task: str, **named: Any) -> Task:
    return make_task(task, DataSettings("", **named))


TASKS = [
    ("classification", "reviews.csv", "held/out.csv", {}),
    ("rte", "pairs.tsv", "held/pairs2.tsv", {}),
    ("translation", "lines", "held/lines2", TRANSLATED),
    ("language-modelling", "book.txt", "held/essay.jsonl", {}),
    ("embedding", "book.txt", "held/essay.jsonl", {}),
    ("image-classification", "../data/train", "../data/val", {}),
]


@pytest.fixture
def files(here: Path, images: Path) -> None:
    (here / "held").mkdir()
    for name in ("reviews.csv", "held/out.csv"):
        write_table(here / name, ROWS)
    for name in ("pairs.tsv", "held/pairs2.tsv"):
        write_table(here / name, PAIRS)
    for name in ("lines", "held/lines2"):
        write_pairs(here, name, 5)
    write(here / "book.txt", captions(50)[1])
    write_table(here / "held" / "essay.jsonl", {"text": captions(30, 1)[1]})


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(("task", "train", "evaluate", "more"), TASKS, ids=lambda v: str(v))
def test_paths_are_read_from_where_the_user_is(
    task: str, train: str, evaluate: str, more: dict[str, Any]
) -> None:
    made = make(task, train=train, evaluate=(evaluate,), **more)
    read = str(made.read_columns())
    assert "never read" not in read
    folder = "data" if task.startswith("image") else "held"
    assert made.signature("x").startswith(f"data:{task if task == 'rte' else folder}-x")
    assert make(task, train=str(Path(train).absolute()), evaluate=(evaluate,), **more)


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(("task", "train", "evaluate", "more"), TASKS, ids=lambda v: str(v))
def test_a_path_where_nothing_is_is_told(
    task: str, train: str, evaluate: str, more: dict[str, Any]
) -> None:
    with mistake("there is no (file|folder) nothing.csv|neither nothing.csv.de with"):
        make(task, train="nothing.csv", evaluate=(evaluate,), **more)
    with mistake("there is no (file|folder) nothing.csv|neither nothing.csv.de with"):
        make(task, train=train, evaluate=("nothing.csv",), **more)


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    ("task", "given", "says"),
    [
        ("classification", {"train": "reviews.csv"}, "no data for evaluation was named; name"),
        ("classification", {"evaluate": ("reviews.csv",)}, "no data for training was named; name"),
        ("rte", {"train": "pairs.tsv"}, "no validation or dev of rte was named; name the file"),
        ("translation", {"evaluate": ("lines",), **TRANSLATED}, "no training pairs are named; nam"),
        ("translation", {"train": "lines", **TRANSLATED}, "has no validation set"),
        ("embedding", {"evaluate": ("book.txt",)}, "no sentences were named; name a file with --t"),
        ("lambada", {"train": "book.txt"}, "no file to evaluate on was named; name one with --ev"),
        ("image-classification", {"train": "../data/train"}, "one to train and one to evaluate on"),
        ("classification", {}, "no data are named; give data, or files as train and evaluate"),
    ],
)
def test_what_is_missing_is_told(task: str, given: dict[str, Any], says: str) -> None:
    with mistake(says):
        make(task, **given)


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("task", ["classification", "rte", "language-modelling", "embedding"])
def test_to_evaluate_one_file_is_enough(task: str) -> None:
    name = next(evaluate for known, _, evaluate, _ in TASKS if known == task)
    made = make(task, evaluate=(name,), evaluate_only=True)
    assert not [column for column in made.read_columns() if column.startswith("train")]
    if task in ("classification", "rte"):
        with mistake("held has no examples to train on; name a file for training"):
            made.train_data(None)
