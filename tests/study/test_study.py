"""Studies: every run once, shared work once, whoever does it, and whatever happens to it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

import headcount as hc
from headcount import HeadcountError
from headcount.runs.prune import prune
from headcount.study.plan import StudySettings
from headcount.study.results import COLUMNS
from headcount.study.run import run_study

COMMAND = Path(sys.executable).with_name("headcount")


def write_study(encoder: Path, tables: Path, path: Path) -> Path:
    settings = {
        "model": str(encoder),
        "task": "classification",
        "data": str(tables),
        "methods": ["unpruned", "joint-dsp", "michel", "random"],
        "keep": [4, 2],
        "seeds": [0, 1],
        "training": {"epochs": 1, "batch_size": 16},
        "settings": {"michel": {"step": 1}},
        "speed": False,
    }
    path.write_text(yaml.safe_dump(settings, sort_keys=False))
    return path


@pytest.fixture
def study(encoder: Path, tables: Path, tmp_path: Path) -> Path:
    return write_study(encoder, tables, tmp_path / "study.yaml")


@pytest.fixture(scope="module")
def finished(encoder: Path, tables: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("finished")
    settings = StudySettings.read(write_study(encoder, tables, place / "study.yaml"))
    assert run_study(settings, place / "out") == {}
    return place / "out"


def test_a_study_has_a_row_per_run_and_split(finished: Path) -> None:
    folder = finished
    results = hc.load_study(folder)
    assert tuple(results.columns) == COLUMNS
    assert len(results) == 2 * (1 + 3 * 2)
    assert set(results.loc[results.method != "unpruned", "heads"]) == {4, 2}
    assert set(results.loc[results.method == "unpruned", "heads"]) == {6}
    assert not list(folder.glob("runs/*/model.safetensors"))
    assert not list(folder.rglob("*.unfinished"))


def test_shared_work_is_done_once(finished: Path) -> None:
    folder = finished
    assert sorted(path.name for path in (folder / "bases").iterdir()) == ["seed0", "seed1"]
    rankings = sorted(path.name for path in (folder / "rankings").iterdir())
    assert rankings == ["michel-seed0.json", "michel-seed1.json"]
    runs = folder / "runs"
    four, two = (hc.HeadMask.load(runs / f"michel-{k}-seed0" / "mask.json") for k in (4, 2))
    assert two < four


def test_one_ranking_gives_what_every_chain_of_its_own_would(
    study: Path, finished: Path, tmp_path: Path
) -> None:
    for name, run in StudySettings.read(study).runs():
        if run.method == "michel" and run.seed == 0:
            alone = tmp_path / f"alone-{name}"
            prune(run, alone, base=finished / "bases" / "seed0", speed=False)
            shared = hc.HeadMask.load(finished / "runs" / name / "mask.json")
            assert hc.HeadMask.load(alone / "mask.json") == shared


def test_what_is_done_is_not_done_again(study: Path, finished: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(finished, tmp_path / "out")
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("metrics.json")}
    more = yaml.safe_load(study.read_text()) | {"keep": [4, 3, 2]}
    study.write_text(yaml.safe_dump(more))
    run_study(StudySettings.read(study), folder)
    assert all(path.stat().st_mtime_ns == written for path, written in before.items())
    assert len(hc.load_study(folder)) == 2 * (1 + 3 * 3)


def test_other_training_is_another_study(study: Path, finished: Path) -> None:
    folder = finished
    other = yaml.safe_load(study.read_text()) | {"training": {"epochs": 2}}
    study.write_text(yaml.safe_dump(other))
    with pytest.raises(HeadcountError, match="was begun with training"):
        run_study(StudySettings.read(study), folder)


def _start(study: Path, folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [COMMAND, "compare", study, "--output", folder],
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def test_two_processes_share_a_study_and_one_may_be_killed(
    study: Path, finished: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "out"
    first, second = _start(study, folder), _start(study, folder)
    for _ in range(600):
        if any(folder.glob("runs/*/metrics.json")) or first.poll() is not None:
            break
        time.sleep(0.1)
    first.send_signal(signal.SIGKILL)
    first.communicate()
    told, _ = second.communicate(timeout=120)
    assert second.returncode == 0, told
    columns = [name for name in COLUMNS if name != "seconds"]
    assert hc.load_study(folder)[columns].equals(hc.load_study(finished)[columns])


def test_a_run_that_fails_does_not_stop_the_others(study: Path, tmp_path: Path) -> None:
    settings = yaml.safe_load(study.read_text()) | {"keep": [7, 2], "seeds": [0]}
    study.write_text(yaml.safe_dump(settings))
    failed = run_study(StudySettings.read(study), tmp_path / "out")
    assert set(failed) == {f"{method}-7-seed0" for method in ("joint-dsp", "michel", "random")}
    assert all("6 heads" in reason for reason in failed.values())
    assert len(hc.load_study(tmp_path / "out")) == 4


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"methods": ["michael"]}, r"line \d+: there is no method michael"),
        ({"settings": {"ste": {}}}, r"line \d+: ste is not among the methods"),
        ({"settings": {"michel": {"steps": 1}}}, r"line \d+: michel has no setting steps"),
        ({"seed": [1]}, r"line \d+: there is no key seed; did you mean seeds\?"),
        ({"keep": [0]}, r"line \d+: keep is 0"),
        ({"keep": []}, r"needs to know how many heads"),
    ],
)
def test_a_wrong_study_is_told_with_its_line(
    study: Path, change: dict[str, object], said: str
) -> None:
    study.write_text(yaml.safe_dump(yaml.safe_load(study.read_text()) | change))
    with pytest.raises(HeadcountError, match=said):
        StudySettings.read(study)


def test_a_folder_of_something_else_is_left_alone(study: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "precious").write_text("mine")
    with pytest.raises(HeadcountError, match="is no study"):
        run_study(StudySettings.read(study), tmp_path / "mine")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["precious"]
    with pytest.raises(HeadcountError, match=r"has no results\.csv"):
        hc.load_study(tmp_path / "mine")


def test_settings_are_written_with_the_study(finished: Path) -> None:
    written = json.loads((finished / "study.json").read_text())
    assert written["methods"] == ["unpruned", "joint-dsp", "michel", "random"]
