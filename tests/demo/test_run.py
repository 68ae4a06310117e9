"""The demo on a small encoder: its table, its picture, and that it does nothing twice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from headcount import HeadcountError
from headcount.demo import run
from tests.small_task import HEADS, save_encoder


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = save_encoder(tmp_path / "encoder")
    monkeypatch.setenv("HEADCOUNT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(run, "encoder_folder", lambda: encoder)
    monkeypatch.setattr(run, "TRAIN", 120)
    monkeypatch.setattr(run, "EVALUATION", 60)
    monkeypatch.setattr(run, "TRAINING", replace(run.TRAINING, batch_size=24))
    monkeypatch.setattr(run, "SETTINGS", {"michel": {"step": 2, "sample": 0.5}})


@pytest.mark.usefixtures("small")
def test_the_demo_shows_what_it_measured(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    result = run.run_demo(folder, keeps=(4, 2))
    assert [row[:2] for row in result.rows()] == [
        ("unpruned", "72"),
        ("handover", "4"),
        ("joint-dsp", "4"),
        ("surgeon", "4"),
        ("michel", "4"),
        ("handover", "2"),
        ("joint-dsp", "2"),
        ("surgeon", "2"),
        ("michel", "2"),
    ]
    assert all(pruned.heads.before == HEADS for pruned in result.runs.values())
    assert result.figure.stat().st_size > 1000
    written = {path: path.stat().st_mtime_ns for path in folder.rglob("*.safetensors")}
    again = run.run_demo(folder, keeps=(4, 2))
    assert again.rows() == result.rows()
    assert written == {path: path.stat().st_mtime_ns for path in folder.rglob("*.safetensors")}


@pytest.mark.usefixtures("small")
def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    with pytest.raises(HeadcountError, match="is not of this demo"):
        run.run_demo(tmp_path / "mine")
    assert list((tmp_path / "mine").iterdir()) == []
