from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headcount.tasks.base import DataSettings
from headcount.tasks.glue import GLUE
from headcount.tasks.registry import CLASSES, GLUE_NAMES, make_task
from tests.tasks.tiny_text import mistake, write_table


def test_tasks_are_made_by_name(tmp_path: Path) -> None:
    rows = {"sentence": ["a", "b"], "label": ["0", "1"]}
    for name in ("train", "dev"):
        write_table(tmp_path / f"{name}.tsv", rows)
    task = make_task("sst2", DataSettings(str(tmp_path)))
    assert (task.name, task.metric) == ("sst2", "accuracy")
    assert task.signature("validation") == "data:sst2-validation"
    task = make_task("classification", DataSettings(str(tmp_path)))
    assert (task.name, task.metric) == ("classification", "accuracy")


def test_all_of_glue_has_a_name() -> None:
    assert tuple(GLUE) == GLUE_NAMES
    assert {"translation", "language-modelling", "image-classification"} < CLASSES.keys()


def test_an_unknown_name_is_told() -> None:
    with mistake("there is no task 'MNLI'; the tasks are mnli, sst2, .*, image-classification"):
        make_task("MNLI", DataSettings("."))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no such files")
@pytest.mark.parametrize("name", ["sst2", *(name for name in CLASSES if name not in GLUE_NAMES)])
def test_no_task_reads_a_pipe_or_a_device(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    for data in ("/dev/zero", str(tmp_path / "pipe.csv")):
        with mistake(f"{data} is neither a file nor a folder"):
            make_task(name, DataSettings(data, source="de", target="en"))
    for part in ("train", "dev"):  # where a folder is searched, they are not found
        (tmp_path / f"{part}.tsv").symlink_to("/dev/zero")
    with mistake("has no |has neither |no folder"):
        make_task(name, DataSettings(str(tmp_path), source="de", target="en"))


WITHOUT_EXTRA = """
import sys
extra = ("accelerate", "datasets", "matplotlib", "pandas", "pyarrow", "scipy", "sklearn")
for name in (*extra, "peft"):  # which asks for accelerate, so that it is not there either
    sys.modules[name] = None
import headcount
from headcount.tasks.base import DataSettings
from headcount.tasks.registry import make_task
try:
    make_task("mnli", DataSettings("."))
except headcount.HeadcountError as error:
    print(error)
"""


def test_without_the_extra_it_is_told_what_to_install() -> None:
    got = subprocess.run([sys.executable, "-c", WITHOUT_EXTRA], capture_output=True, text=True)
    assert "the task mnli needs the package" in got.stdout, got.stderr
    assert "pip install 'headcount[tasks]'" in got.stdout
