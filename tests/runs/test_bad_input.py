"""What is wrong is told before anything is written."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from headcount import HeadcountError
from headcount.runs.job import PruningJob
from headcount.runs.prune import prune
from headcount.runs.resume import _told
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
        ({"method": "michel", "settings": {"freeze": ["bert.*"]}}, "michel changes no weights"),
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


def test_a_damaged_checkpoint_is_passed_over_or_told(settings: RunSettings, tmp_path: Path) -> None:
    training = replace(settings.training, max_steps=5)
    short = replace(settings, training=training)
    out = tmp_path / "out"

    class DiedError(Exception):
        pass

    def die(*args: object) -> None:
        raise DiedError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PruningJob, "_cut", die)
        with pytest.raises(DiedError):
            prune(short, out, speed=False)
    (state,) = (tmp_path / "out.unfinished").glob("checkpoint-*/trainer_state.json")
    weights = state.with_name("model.safetensors")
    whole = weights.read_bytes()
    weights.write_bytes(whole[:100])
    state.write_text(state.read_text().replace('"global_step": 5', '"global_step": 4'))
    with pytest.raises(HeadcountError, match=r"checkpoint-5 is damaged: .*; delete it, and go on"):
        prune(short, out, resume=True, speed=False)
    state.write_text(state.read_text()[:100])
    assert prune(short, out, resume=True, speed=False).heads.after == 3  # from the start


def test_what_breaks_a_training_off_is_told_as_it_is(tmp_path: Path) -> None:
    told = _told(FileNotFoundError(errno.ENOENT, "No such file", "part-3"), tmp_path, None)
    assert "broke off" in str(told) and "part-3" in str(told)
    assert "make room" in str(_told(OSError(errno.ENOSPC, "No space left"), tmp_path, None))
