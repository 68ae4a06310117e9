"""The demo on a small encoder: its table, picture and page, and that it does nothing twice."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from headcount import HeadcountError
from headcount.demo import run
from headcount.runs.settings import RunSettings
from headcount.study.speed import MEASURING
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


class Stop(KeyboardInterrupt):
    """A user who stops the demo."""


def weights(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*.safetensors")}


@pytest.mark.usefixtures("small")
def test_the_demo_goes_on_and_shows_what_it_measured(tmp_path: Path) -> None:
    folder, keeps = tmp_path / "demo", (4, 2)
    heard: list[tuple[int, int, str]] = []

    def told(done: int, total: int, what: str, left: float) -> None:
        assert left > 0
        heard.append((done, total, what))
        if len(heard) == 3:
            raise Stop

    with pytest.raises(Stop):
        run.run_demo(folder, keeps, told=told)
    assert heard == [
        (0, 9, "fine-tuning, all 72 heads"),
        (1, 9, "handover, 4 of 72 heads"),
        (2, 9, "handover, 2 of 72 heads"),
    ]
    made = weights(folder)
    result = run.run_demo(folder, keeps, told=told)
    assert heard[3] == heard[2]
    assert heard[-2:] == [(8, 9, "michel, 2 of 72 heads"), (9, 9, "measuring speed")]
    whole = weights(folder)
    assert made.items() < whole.items()

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
    assert all(row[-1].startswith("× ") for row in result.rows()[1:])  # speeds
    assert (result.models / "model.safetensors").is_file()
    assert result.figure.stat().st_size > 1000
    page = result.page.read_text(encoding="utf-8")
    assert run.NAME in page and "joint-dsp" in page
    assert len(list((folder / run.STUDY / "rankings").iterdir())) == 2  # for both numbers of heads

    again = run.run_demo(folder, keeps)
    assert again.rows() == result.rows()
    assert weights(folder) == whole


def test_the_time_left_is_measured_by_the_runs_that_are_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(run, "SECONDS", {"unpruned": 60.0, "handover": 30.0})
    monkeypatch.setattr(run, "SECONDS_OF_SPEED", 10.0)
    common = RunSettings("model", "classification", "data", "unpruned")
    runs = {"all": common, "twelve": replace(common, method="handover", keep=12)}
    left = []
    outlook = run._Outlook(runs, lambda *said: left.append(said[-1]))
    outlook.tell(0, 2, "all")
    now = 120.0  # twice as long as expected
    outlook.tell(1, 2, "twelve")
    now = 180.0
    outlook.tell(2, 2, MEASURING)
    assert left == [100.0, 80.0, 20.0]


def test_the_first_run_of_a_method_ranks_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: 0.0)
    monkeypatch.setattr(run, "SECONDS", {"surgeon": 10.0})
    monkeypatch.setattr(run, "SECONDS_OF_RANKING", {"surgeon": 100.0, "michel": 50.0})
    monkeypatch.setattr(run, "SECONDS_OF_SPEED", 1.0)
    surgeon = RunSettings("model", "classification", "data", "surgeon", keep=12)
    runs = {"twelve": surgeon, "six": replace(surgeon, keep=6)}
    left = [run._Outlook(runs, lambda *said: None)._left(name) for name in (*runs, MEASURING)]
    assert left == [121.0, 11.0, 1.0]


@pytest.mark.usefixtures("small")
def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    with pytest.raises(HeadcountError, match="is not of this demo"):
        run.run_demo(tmp_path / "mine")
    assert list((tmp_path / "mine").iterdir()) == []
