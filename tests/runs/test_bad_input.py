"""What is wrong is told before anything is written."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from headcount import HeadcountError
from headcount.runs.prune import prune
from headcount.runs.settings import RunSettings, TrainingSettings


@pytest.fixture
def settings(encoder: Path, tables: Path) -> RunSettings:
    training = TrainingSettings(epochs=1.0, batch_size=16)
    return RunSettings(str(encoder), "classification", str(tables), keep=3, training=training)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"keep": 7}, "6 heads"),
        ({"keep": 0}, "keep"),
        ({"method": "michel"}, "michel needs a model that is fine-tuned .* give one that is, or"),
        ({"method": "pipelined-dsp"}, "needs a model that is fine-tuned"),
        ({"method": "magic"}, "no method 'magic'"),
        ({"task": "magic"}, "no task 'magic'"),
        ({"model": "/nowhere/model"}, "there is no folder /nowhere/model"),
        ({"data": "/nowhere/data"}, "/nowhere/data"),
    ],
)
def test_nothing_is_written_for_bad_settings(
    settings: RunSettings, tmp_path: Path, change: dict[str, object], said: str
) -> None:
    with pytest.raises(HeadcountError, match=said):
        prune(replace(settings, **change), tmp_path / "out")  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_an_output_that_exists_is_left_alone(settings: RunSettings, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "precious").write_text("mine")
    with pytest.raises(HeadcountError, match="exists already"):
        prune(settings, tmp_path / "out")
    assert (tmp_path / "out" / "precious").read_text() == "mine"


def test_an_output_without_a_parent_is_told(settings: RunSettings, tmp_path: Path) -> None:
    with pytest.raises(HeadcountError, match="is not a folder"):
        prune(settings, tmp_path / "none" / "out")


def test_a_full_disk_is_one_sentence(encoder: Path, tables: Path, tmp_path: Path) -> None:
    command = [
        str(Path(sys.executable).with_name("headcount")), "prune", str(encoder),
        "--task", "classification", "--data", str(tables), "--keep", "3", "--epochs", "1",
        "--output", str(tmp_path / "out"),
    ]  # fmt: skip

    def small_files_only() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    run = subprocess.run(
        command,
        text=True,
        capture_output=True,
        preexec_fn=small_files_only,
        env={**os.environ, "OMP_NUM_THREADS": "1", "HEADCOUNT_CACHE": str(tmp_path / "cache")},
    )
    assert run.returncode == 2, run.stderr
    assert "Traceback" not in run.stderr
    assert "cannot be written" in run.stderr
    assert not (tmp_path / "out").exists()
