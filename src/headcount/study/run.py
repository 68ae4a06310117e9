"""Run a study: every run once, shared work once, by one process or by several at a time."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from headcount.atomic import write_whole
from headcount.errors import HeadcountError, Stopped
from headcount.loading.folder import first_line
from headcount.runs.base_model import base_settings, fine_tune_base
from headcount.runs.methods import UNTIL, choosing, find_method
from headcount.runs.progress import Progress, Silent
from headcount.runs.prune import prune, prune_many
from headcount.runs.rank import rank_heads
from headcount.runs.result import FILE as RESULT
from headcount.runs.settings import RunSettings
from headcount.runs.unfinished import first_change, refuse_other_settings
from headcount.study.plan import SETTINGS, Job, StudySettings
from headcount.study.results import write_results
from headcount.study.speeds import time_runs

PARTS = ("runs", "bases", "rankings", "locks")
RANKED = ("surgeon", "michel", "ablation")  # one ranking serves every number of heads


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

    def has(self, name: str) -> bool:
        """Whether a run has its result, which is written last."""
        return (self.run(name) / RESULT).is_file()

    def base(self, study: StudySettings, run: RunSettings) -> Path:
        """The fine-tuned model that pipelined methods start from.

        It is the same for all entries of a seed, but for those whose own training changes it.
        """
        wanted = base_settings(run)
        usual = base_settings(replace(run, training=study.training))
        ending = "" if wanted == usual else f"-{_digest(wanted)}"
        return self.folder / "bases" / f"seed{run.seed}{ending}"

    def ranking(self, run: RunSettings) -> Path:
        """The ranking of entries that score heads: of their settings, and their base model's."""
        decides = _digest([choosing(run.settings), base_settings(run)])
        return self.folder / "rankings" / f"{run.method}-seed{run.seed}-{decides}.json"

    def lock(self, name: str) -> FileLock:
        """Held while something is done; the system releases it when its process dies."""
        return FileLock(self.folder / "locks" / f"{name}.lock")


def open_study(study: StudySettings, folder: Path) -> Places:
    """Make the study's folder, or make sure that it is of the same study."""
    settings = json.loads(json.dumps(asdict(study)))
    known = folder / SETTINGS
    if folder.exists() and not known.is_file():
        if not folder.is_dir():
            raise HeadcountError(f"{folder} is a file; give a folder for the study")
        # Another process may be making the study at this moment.
        others = [p for p in folder.iterdir() if p.name not in PARTS and SETTINGS not in p.name]
        if others:
            raise HeadcountError(f"{folder} exists already and is no study; give another folder")
    elif folder.exists():
        try:
            begun = json.loads(known.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise HeadcountError(
                f"{known} is damaged: {error}; restore it, or give another folder"
            ) from error
        # More methods, numbers or seeds only add runs, and speed is measured when they are done.
        may_grow = dict.fromkeys(("methods", "keep", "seeds", "settings", "speed"))
        changed = first_change({**begun, **may_grow}, {**settings, **may_grow})
        if changed is not None:
            key, before, after = changed
            raise HeadcountError(
                f"{folder} was begun with {key} {before}, but now it is {after}; give the same "
                "settings to go on, or another folder"
            )
        for name, run in study.runs().items():
            if Places(folder).has(name):
                refuse_other_settings(Places(folder).run(name), run.to_dict())
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
    jobs = list(study.jobs())
    total = sum(len(job.runs) for job in jobs)
    failed: dict[str, str] = {}
    while True:
        waiting = [job for job in jobs if undone(places, job, failed)]
        if not waiting:
            break
        done_any = False
        for job in waiting:
            left = [name for each in jobs for name in undone(places, each, failed)]
            if told is not None:
                told(total - len(left), total, job.name)
            try:
                done_any |= do_job(study, places, job, progress or Silent())
            except Stopped as stopped:
                raise Stopped(stopped.where, "the same command goes on") from stopped
            except Exception as error:  # whatever it is, the others can still be done
                failed |= dict.fromkeys(undone(places, job), why(error))
            write_results(folder)
        if not done_any and any(undone(places, job, failed) for job in jobs):
            time.sleep(1.0)  # others are at them; wait in case they die
    write_results(folder)
    if study.speed and not failed:
        failed = measured(study, places, progress or Silent())
    return failed


def measured(study: StudySettings, places: Places, progress: Progress) -> dict[str, str]:
    """Measure the speed of every run that has none; returns why that failed, or nothing."""
    try:
        time_runs(study, places, progress)
    except Exception as error:  # the results are there, and are to be told
        return {"the measuring of speed": why(error)}
    return {}


def why(error: Exception) -> str:
    """Why a run failed, in a line."""
    known = isinstance(error, HeadcountError)
    return str(error) if known else f"{type(error).__name__}: {first_line(error)}"


def undone(places: Places, job: Job, failed: Collection[str] = ()) -> list[str]:
    """Runs of a job that have no result and have not failed."""
    return [name for name in job.runs if name not in failed and not places.has(name)]


def do_job(study: StudySettings, places: Places, job: Job, progress: Progress) -> bool:
    """Do the runs of a job unless they are done, or another process is at them.

    Returns:
        Whether they were done here.
    """
    lock = places.lock(job.name)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return False
    try:
        if not undone(places, job):
            return False
        settings = job.settings
        base = None
        if _starts_from_base(settings):
            base = places.base(study, settings)
            with places.lock(f"base-{base.name}"):
                if not base.exists():
                    fine_tune_base(settings, base, progress)
        how: Any = {
            "base": base,
            "resume": True,
            "speed": False,  # nothing is to run beside it
            "weights": study.models,
            "progress": progress,
        }
        if isinstance(settings.keep, tuple):
            folders = dict(zip(settings.keep, map(places.run, job.runs), strict=True))
            prune_many(settings, places.run(job.name), folders=folders, **how)
        else:
            ranking = _ranked(places, settings, base, progress)
            prune(settings, places.run(job.name), ranking=ranking, **how)
        return True
    finally:
        lock.release()


def _ranked(
    places: Places, settings: RunSettings, base: Path | None, progress: Progress
) -> Path | None:
    """The ranking that serves every number of heads, for methods that have one."""
    if settings.method not in RANKED or settings.keep is None or UNTIL in settings.settings:
        return None
    ranking = places.ranking(settings)
    with places.lock(ranking.stem):
        # Down to one head: the best K of the ranking are those that a chain which ends at K would
        # keep, since heads that leave together are ranked by the scores they had.
        if not ranking.exists():
            source = str(base or settings.model)
            rank_heads(settings, source, ranking, progress)
    return ranking


def _starts_from_base(settings: RunSettings) -> bool:
    method = find_method(settings.method)
    training = settings.training
    taught = training.distil is not None and not method.pruner.teaches_itself
    asked = training.warm_start or taught
    return asked or method.post_hoc or method.name == "unpruned"


def _digest(content: object) -> str:
    """A short name for settings."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:8]
