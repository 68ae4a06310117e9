"""The digest of a task's data: other for other rows, and for nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from headcount.tasks.base import DataSettings
from headcount.tasks.digest import digest_of
from headcount.tasks.registry import make_task
from tests.tasks.tiny_text import write_table

ROWS: dict[str, list[Any]] = {"text": ["one", "two", "three"], "label": ["a", "b", "a"]}


def table_digest(folder: Path, ending: str = "csv", **changed: list[Any]) -> str:
    write_table(folder / f"train.{ending}", ROWS | changed)
    write_table(folder / f"dev.{ending}", ROWS)
    return make_task("classification", DataSettings(str(folder))).data_digest()


def test_the_same_rows_have_the_same_digest_in_every_format(tmp_path: Path) -> None:
    first = table_digest(tmp_path / "one")
    for ending in ("csv.gz", "tsv", "jsonl", "parquet"):
        assert table_digest(tmp_path / ending, ending) == first
    (tmp_path / "one" / "notes.txt").write_text("unrelated")
    (tmp_path / "one" / "other.csv").write_text("text,label\nunrelated,a\n")
    assert table_digest(tmp_path / "one") == first


@pytest.mark.parametrize(
    "changed",
    [
        {"label": ["a", "b", "b"]},
        {"text": ["one", "two", "three "]},
        {"text": ["two", "one", "three"], "label": ["b", "a", "a"]},
        {"text": ["onet", "wo", "three"]},
        {"text": ["one", "two"], "label": ["a", "b"]},
    ],
)
def test_other_rows_have_another_digest(changed: dict[str, list[Any]], tmp_path: Path) -> None:
    assert table_digest(tmp_path / "one") != table_digest(tmp_path / "other", **changed)


def test_a_digest_is_the_same_in_every_process() -> None:
    program = (
        "from headcount.tasks.digest import digest_of; "
        "print(digest_of({'text': ['one', 'zwei', b'3'], 'none': []}))"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    here = digest_of({"text": ["one", "zwei", b"3"], "none": []})
    # Written here, so that no version of Python or of headcount may change it unnoticed.
    assert ended.stdout.strip() == here == "aec739c8486dd69c8cd1c00d780578c441b74319"


def test_names_and_borders_of_columns_count() -> None:
    columns = [
        {"a": ["b"]}, {"b": ["a"]}, {"a": ["b", ""]}, {"a": [], "b": []}, {"a": []},
        {"ab": []}, {"b": [], "a": []},
    ]  # fmt: skip
    assert len({digest_of(column) for column in columns}) == len(columns)


def test_pairs_and_texts_have_digests(tmp_path: Path) -> None:
    for name in ("train", "val"):
        (tmp_path / f"{name}.de").write_text("eins\nzwei\n")
        (tmp_path / f"{name}.en").write_text("one\ntwo\n")
        (tmp_path / f"{name}.txt").write_text("one\ntwo\n")
    for task, more, file in (
        ("translation", {"source": "de", "target": "en"}, "val.en"),
        ("language-modelling", {"train": "train.txt", "evaluate": ("val.txt",)}, "val.txt"),
    ):
        settings = DataSettings(str(tmp_path), **more)
        first = make_task(task, settings).data_digest()
        assert make_task(task, settings).data_digest() == first
        (tmp_path / file).write_text("one\nthree\n")
        assert make_task(task, settings).data_digest() != first


@pytest.mark.parametrize("size", [8, 400])  # a small file, and one that is not read whole
def test_images_have_digests(size: int, tmp_path: Path) -> None:
    for part in ("train", "val"):
        for label in ("cat", "dog"):
            folder = tmp_path / part / label
            folder.mkdir(parents=True)
            Image.effect_noise((size, size), 50).convert("RGB").save(folder / "1.png")
    settings = DataSettings(str(tmp_path))
    first = make_task("image-classification", settings).data_digest()
    assert make_task("image-classification", settings).data_digest() == first
    with Image.open(tmp_path / "train" / "cat" / "1.png") as image:
        image.putpixel((size // 2, size // 2), (1, 2, 3))
        image.save(tmp_path / "train" / "cat" / "1.png")
    changed = make_task("image-classification", settings).data_digest()
    assert changed != first
    (tmp_path / "train" / "dog").rename(tmp_path / "train" / "ant")
    (tmp_path / "val" / "dog").rename(tmp_path / "val" / "ant")
    assert make_task("image-classification", settings).data_digest() not in (first, changed)
