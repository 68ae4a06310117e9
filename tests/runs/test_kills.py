"""Kill a run at every moment that makes something visible, and see that it ends as if never killed.

`atomic.give_name` is the one function that gives files and folders their names. A child process
dies there without a farewell, before or after the name is given, and another one goes on.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from headcount import atomic
from headcount.runs.prune import prune
from headcount.runs.settings import RunSettings, TrainingSettings
from headcount.study.plan import StudySettings
from headcount.study.run import run_study

DIED = 17
Job = Callable[[Path], None]


@pytest.fixture
def jobs(encoder: Path, tables: Path, tmp_path: Path) -> dict[str, Job]:
    training = TrainingSettings(epochs=1.0, batch_size=32, learning_rate=1e-3)

    def pruned(method: str) -> Job:
        settings = RunSettings(
            str(encoder), "classification", str(tables), method=method, keep=3, training=training
        )

        def job(folder: Path) -> None:
            if (folder / "m").exists() and not (folder / "m.unfinished").exists():
                return  # it was killed after its last act
            base = folder / "base" if method == "michel" else None
            prune(settings, folder / "m", resume=True, speed=False, base=base)

        return job

    study = StudySettings(
        model=str(encoder), task="classification", data=str(tables), keep=(2,),
        methods=("random", "michel"), seeds=(0,), training=training, speed=False,
    )  # fmt: skip

    def compare(folder: Path) -> None:
        failed = run_study(study, folder / "study")
        assert failed == {}, failed

    return {"prune": pruned("michel"), "handover": pruned("handover"), "study": compare}


def in_a_child(work: Callable[[], None]) -> int:
    """Do something in a copy of this process; its exit code."""
    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    child.join(120)
    assert child.exitcode is not None, "it hangs"
    return child.exitcode


def renames(job: Job, folder: Path) -> int:
    """How many names a whole run gives."""
    noted = folder.with_name(f"{folder.name}.count")

    def work() -> None:
        given, count = atomic.give_name, 0

        def counting(scratch: Path, path: Path) -> None:
            nonlocal count
            count += 1
            noted.write_text(str(count))
            given(scratch, path)

        atomic.give_name = counting
        job(folder)

    folder.mkdir()
    assert in_a_child(work) == 0
    return int(noted.read_text())


def killed(job: Job, folder: Path, at: int, before: bool) -> None:
    """Do the job in a process that dies at its n-th name."""

    def work() -> None:
        given, count = atomic.give_name, 0

        def dying(scratch: Path, path: Path) -> None:
            nonlocal count
            count += 1
            if count == at and before:
                os._exit(DIED)
            given(scratch, path)
            if count == at:
                os._exit(DIED)

        atomic.give_name = dying
        job(folder)

    folder.mkdir()
    assert in_a_child(work) == DIED


def contents(folder: Path) -> dict[str, str]:
    """What the files of a finished job say, but for times and what draws and locks leave."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if not path.is_file() or "locks/" in name or path.suffix == ".png":
            continue
        if name.startswith("study/.") and path.suffix == ".tmp":
            continue  # another process may be writing it: it goes after an hour
        if path.name in ("metrics.json", "results.csv", "base_seconds.json", "README.md"):
            continue
        if path.suffix == ".json" and "rankings/" in name:
            data = json.loads(path.read_text())
            data.pop("seconds", None)
            found[name] = json.dumps(data)
            continue
        found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def test_the_hook_is_where_everything_becomes_visible() -> None:
    """No other place in the package renames: a kill test that misses one would miss a bug."""
    source = Path(atomic.__file__).parent
    for path in source.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if path.name != "atomic.py":
            assert "os.replace" not in text and ".rename(" not in text, path


def check(job: Job, tmp_path: Path, places: Callable[[int], list[int]]) -> None:
    whole, warm = tmp_path / "whole", tmp_path / "warm"
    renames(job, warm)  # so that prepared data are there for all that follow
    total = renames(job, whole)
    expected = contents(whole)
    assert expected
    for at in places(total):
        for before in (True, False):
            folder = tmp_path / f"{at}-{before}"
            killed(job, folder, at, before)
            assert in_a_child(lambda place=folder: job(place)) == 0, (at, before)  # type: ignore[misc]
            found = contents(folder)
            assert found == expected, (
                at,
                before,
                {k for k in found if found[k] != expected.get(k)},
            )


@pytest.mark.parametrize("name", ["prune", "handover", "study"])
def test_a_kill_at_some_names_changes_nothing(
    name: str, jobs: dict[str, Job], tmp_path: Path
) -> None:
    check(jobs[name], tmp_path, lambda total: [2, total])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["prune", "handover", "study"])
def test_a_kill_at_every_name_changes_nothing(
    name: str, jobs: dict[str, Job], tmp_path: Path
) -> None:
    check(jobs[name], tmp_path, lambda total: list(range(1, total + 1)))
