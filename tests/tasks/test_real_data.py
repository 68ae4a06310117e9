"""Real files, where there are any: HEADCOUNT_DATA names a folder with `mnli` and `glue` in it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headcount.tasks.base import DataSettings
from headcount.tasks.classification import Classification, GlueTask
from tests.tasks.tiny_text import tiny_tokenizer

DATA = os.environ.get("HEADCOUNT_DATA", "")
pytestmark = pytest.mark.skipif(not DATA, reason="HEADCOUNT_DATA names no folder with data")

# The size of the set to tune on, which is GLUE's; training sets may be samples.
SIZES = {
    ("mnli", ""): 9815,
    ("sst2", "glue"): 872,
    ("cola", "glue"): 1043,
    ("mrpc", "glue"): 408,
    ("rte", "glue"): 277,
}


@pytest.mark.parametrize("name, folder", SIZES)
def test_real_files_of_glue(name: str, folder: str, tmp_path: Path) -> None:
    settings = DataSettings(str(Path(DATA) / folder), limit_train=50, limit_eval=20, cache=tmp_path)
    task = GlueTask(name, settings)
    first, *others = task.evaluation.values()
    assert len(first) == SIZES[name, folder]
    assert len(others) == (1 if name == "mnli" else 0)
    assert len(task.train) > 2000
    assert set(task.train.labels) == set(task.labels)
    assert len(task.train_data(tiny_tokenizer())) == 50
    assert {len(data) for data in task.evaluation_data(tiny_tokenizer()).values()} == {20}


def test_snli_is_a_table_like_any_other() -> None:
    task = Classification(DataSettings(str(Path(DATA) / "snli")))
    assert task.labels == ("contradiction", "entailment", "neutral")
    assert len(task.train.texts) == 2
    assert len(task.train) + task.dropped["train"] == 100_000
