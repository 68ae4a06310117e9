"""A study on a real Ray, started on this machine, with a worker that is killed."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest
import yaml

import headcount as hc
from headcount.study.plan import StudySettings
from headcount.study.ray import run_on_ray
from headcount.study.results import COLUMNS
from headcount.study.run import run_study

psutil = pytest.importorskip("psutil")
pytest.importorskip("ray")


def kill_a_worker(folder: Path, killed: list[int]) -> None:
    """Kill the first process that is in the middle of a run."""
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        busy = any(folder.glob("runs/*.unfinished")) or any(folder.glob("bases/*.unfinished"))
        ours = psutil.Process().children(recursive=True)
        workers = [p.pid for p in ours if "ray::_run_one" in " ".join(_words(p))]
        if busy and workers:
            os.kill(workers[0], signal.SIGKILL)
            killed.append(workers[0])
            return
        time.sleep(0.05)


def _words(process: object) -> list[str]:
    try:
        return process.cmdline()  # type: ignore[attr-defined, no-any-return]
    except psutil.Error:
        return []


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_a_killed_worker_costs_nothing_but_time(
    encoder: Path, tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    settings = {
        "model": str(encoder),
        "task": "classification",
        "data": str(tables),
        "methods": ["unpruned", "joint-dsp", "together", "random"],
        "keep": [3],
        "settings": {"together": {"method": "joint-dsp", "keep": [3, 2], "one_run": True}},
        "seeds": [0, 1],
        "training": {"epochs": 6, "batch_size": 16},
        "speed": False,
    }
    path = tmp_path / "study.yaml"
    path.write_text(yaml.safe_dump(settings))
    study, folder = StudySettings.read(path), tmp_path / "cluster"
    killed: list[int] = []
    killer = threading.Thread(target=kill_a_worker, args=(folder, killed))
    killer.start()
    assert run_on_ray(study, folder) == {}
    killer.join()
    assert killed
    run_study(study, tmp_path / "alone")
    columns = [name for name in COLUMNS if name != "seconds"]
    assert hc.load_study(folder)[columns].equals(hc.load_study(tmp_path / "alone")[columns])
