"""Run a study: every run once, shared work once, by one process or by several at a time."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from filelock import FileLock, Timeout

from headcount.errors import HeadcountError
from headcount.runs.base_model import fine_tune_base
from headcount.runs.methods import UNTIL, find_method
from headcount.runs.progress import Progress, Silent
from headcount.runs.prune import prune
from headcount.runs.rank import rank_heads
from headcount.runs.result import FILE as RESULT
from headcount.runs.settings import RunSettings
from headcount.study.plan import StudySettings
from headcount.study.results import write_results
from headcount.training.history import write_whole

SETTINGS = "study.json"
PARTS = ("runs", "bases", "rankings", "locks")
RANKED = ("michel", "ablation")  # one ranking serves every number of heads


@dataclass(frozen=True)
class Places:
    """Where in its folder a study keeps things.

    Attributes:
        folder: of the study.
    """

    folder: Path

    def run(self, name: str) -> Path:
        """The folder of a run."""
        return self.folder / "runs" / name

    def base(self, seed: int) -> Path:
        """The fine-tuned model of a seed, which all pipelined methods start from."""
        return self.folder / "bases" / f"seed{seed}"

    def ranking(self, method: str, seed: int) -> Path:
        """The ranking of a method that scores heads."""
        return self.folder / "rankings" / f"{method}-seed{seed}.json"

    def lock(self, name: str) -> FileLock:
        """Held while something is done; the system releases it when its process dies."""
        return FileLock(self.folder / "locks" / f"{name}.lock")


def open_study(study: StudySettings, folder: Path) -> Places:
    """Make the study's folder, or make sure that it is of the same study."""
    settings = json.loads(json.dumps(asdict(study)))
    known = folder / SETTINGS
    if folder.exists() and not known.is_file():
        # Another process may be making the study at this moment.
        others = [p for p in folder.iterdir() if p.name not in PARTS and SETTINGS not in p.name]
        if others:
            raise HeadcountError(f"{folder} exists already and is no study; give another folder")
    elif folder.exists():
        begun = json.loads(known.read_text(encoding="utf-8"))
        changed = [key for key in settings if begun.get(key) != settings[key]]
        # More methods, numbers or seeds only add runs.
        fixed = [key for key in changed if key not in ("methods", "keep", "seeds", "settings")]
        if fixed:
            raise HeadcountError(
                f"{folder} was begun with {fixed[0]} {begun.get(fixed[0])}, but now it is "
                f"{settings[fixed[0]]}; give the same settings to go on, or another folder"
            )
    try:
        for part in PARTS:
            (folder / part).mkdir(parents=True, exist_ok=True)
        text = json.dumps(settings, indent=2) + "\n"
        write_whole(known, lambda path: path.write_text(text, encoding="utf-8"))
    except OSError as error:
        raise HeadcountError(f"{folder} cannot be written: {error.strerror or error}") from error
    return Places(folder)


def run_study(
    study: StudySettings,
    folder: Path,
    progress: Progress | None = None,
    told: Callable[[int, int, str], None] | None = None,
) -> dict[str, str]:
    """Do every run that has no result yet; another process may do the same at the same time.

    A run that fails does not stop the others.

    Args:
        study: what to compare.
        folder: of the study; one that was stopped goes on.
        progress: who wants to know about the current run.
        told: called with the number of finished runs, of all runs, and the current one's name.

    Returns:
        Why runs failed, by their names.
    """
    places = open_study(study, folder)
    runs = dict(study.runs())
    failed: dict[str, str] = {}
    while True:
        waiting = [name for name in runs if name not in failed and not is_done(places, name)]
        if not waiting:
            break
        done_any = False
        for name in waiting:
            if told is not None:
                told(len(runs) - len(waiting), len(runs), name)
            try:
                done_any |= do_run(study, places, name, runs[name], progress or Silent())
            except HeadcountError as error:
                failed[name] = str(error)
            waiting = [n for n in runs if n not in failed and not is_done(places, n)]
            write_results(folder)
        if not done_any and waiting:
            time.sleep(1.0)  # others are at them; wait in case they die
    write_results(folder)
    return failed


def is_done(places: Places, name: str) -> bool:
    """Whether a run has its result, which is written last."""
    return (places.run(name) / RESULT).is_file()


def do_run(
    study: StudySettings, places: Places, name: str, settings: RunSettings, progress: Progress
) -> bool:
    """Do one run unless it is done, or another process is at it.

    Returns:
        Whether it was done here.
    """
    lock = places.lock(name)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return False
    try:
        if is_done(places, name):
            return False
        base = None
        if _starts_from_base(settings):
            base = places.base(settings.seed)
            with places.lock(f"base-seed{settings.seed}"):
                if not base.exists():
                    fine_tune_base(settings, base, progress)
        ranking = None
        if (
            settings.method in RANKED
            and settings.keep is not None
            and UNTIL not in settings.settings
        ):
            ranking = places.ranking(settings.method, settings.seed)
            with places.lock(f"{settings.method}-seed{settings.seed}"):
                # Down to one head: the best K of the ranking are those that a chain which ends at
                # K would keep, since heads that leave together are ranked by the scores they had.
                if not ranking.exists():
                    source = str(base or settings.model)
                    rank_heads(replace(settings, keep=1), source, ranking, progress)
        prune(
            settings,
            places.run(name),
            base=base,
            resume=True,
            speed=study.speed,
            weights=study.models,
            ranking=ranking,
            progress=progress,
        )
        return True
    finally:
        lock.release()


def _starts_from_base(settings: RunSettings) -> bool:
    method = find_method(settings.method)
    return method.post_hoc or method.name == "unpruned" or settings.training.warm_start
