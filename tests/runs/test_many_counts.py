"""Several numbers of heads from one training: a folder for each, and a stop between them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import headcount as hc
from headcount import HeadcountError
from headcount.errors import Stopped
from headcount.runs.progress import Silent
from headcount.runs.prune import prune, prune_many
from headcount.runs.result import RunResult
from headcount.runs.settings import RunSettings, TrainingSettings


class StopAtWriting(Silent):
    """Stops a run when it begins to write for the second time."""

    def __init__(self) -> None:
        self.begun = 0

    def begin(self, stage: str, total: int | None = None) -> None:
        self.begun += stage == "writing"
        if self.begun == 2:
            raise Stopped("as if killed")


class Steps(Silent):
    """Notes how far a training is."""

    def __init__(self) -> None:
        self.stage, self.seen = "", set[int]()

    def begin(self, stage: str, total: int | None = None) -> None:
        self.stage = stage

    def advance(self, done: int, note: str = "", total: int | None = None) -> None:
        if self.stage == "fine-tuning and pruning":
            self.seen.add(done)


@pytest.fixture
def settings(encoder: Path, tables: Path) -> RunSettings:
    training = TrainingSettings(epochs=2.0, batch_size=16)
    return RunSettings(
        str(encoder), "classification", str(tables), "joint-dsp", (4, 0.5, 1), training=training
    )


def test_a_stop_between_two_folders_costs_nothing(settings: RunSettings, tmp_path: Path) -> None:
    out, work = tmp_path / "out", tmp_path / "out.unfinished"
    with pytest.raises(Stopped):
        prune_many(settings, out, speed=False, progress=StopAtWriting())
    assert [path.name for path in out.iterdir()] == ["keep-4"]
    assert work.exists()
    written = (out / "keep-4" / "metrics.json").stat().st_mtime_ns
    with pytest.raises(HeadcountError, match="out exists already"):
        prune_many(settings, out, speed=False)
    with pytest.raises(HeadcountError, match="was begun with seed 0, but now it is 1"):
        prune_many(replace(settings, seed=1), out, resume=True, speed=False)

    steps = Steps()
    results = prune_many(settings, out, resume=True, speed=False, progress=steps)
    assert not steps.seen  # nothing is trained again
    assert list(results) == [4, 0.5, 1]
    assert [result.heads.after for result in results.values()] == [4, 3, 1]
    assert len({result.seconds["pruning"] for result in results.values()}) == 1
    assert (out / "keep-4" / "metrics.json").stat().st_mtime_ns == written
    assert not work.exists()
    masks = [hc.HeadMask.load(out / f"keep-{keep}" / "mask.json") for keep in results]
    assert masks[2] < masks[1] < masks[0]
    for keep, result in results.items():
        assert RunResult.load(out / f"keep-{keep}") == result
        assert result.cost == pytest.approx(sum(result.seconds.values()) / 3)
        chosen = json.loads((out / f"keep-{keep}" / "settings.json").read_text())
        assert (chosen["keep"], chosen["trained_for"]) == (keep, [4, 0.5, 1])
        assert (out / f"keep-{keep}" / "model.safetensors").is_file()
    assert prune_many(settings, out, resume=True, speed=False) == results


def test_one_and_several_are_not_confused(settings: RunSettings, tmp_path: Path) -> None:
    with pytest.raises(HeadcountError, match="prune_many is for several"):
        prune(settings, tmp_path / "out")
    with pytest.raises(HeadcountError, match="prune is for one K"):
        prune_many(replace(settings, keep=3), tmp_path / "out")
    with pytest.raises(HeadcountError, match="ste cannot learn for several K in one run"):
        prune_many(replace(settings, method="ste"), tmp_path / "out")
    assert not list(tmp_path.iterdir())
