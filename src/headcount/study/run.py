"""Run a study: every run once, shared work once, by one process or by several at a time.

What is done is in the study's folder (see `Places`), and locks there keep processes apart. Speed is
measured at the end, when nothing else runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from filelock import Timeout

from headcount.atomic import sweep
from headcount.errors import HeadcountError, Stopped
from headcount.loading.folder import first_line
from headcount.pruners.methods import find_pruner, make_pruner
from headcount.runs.base_model import fine_tune_base
from headcount.runs.progress import Progress, Silent
from headcount.runs.prune import prune, prune_many
from headcount.runs.settings import RunSettings
from headcount.runs.stages import rank_heads
from headcount.study.places import Places, open_study
from headcount.study.plan import Job, StudySettings
from headcount.study.results import write_results
from headcount.study.speed import MEASURING, time_runs


def run_study(
    study: StudySettings,
    folder: Path,
    progress: Progress | None = None,
    told: Callable[[int, int, str], None] | None = None,
) -> dict[str, str]:
    """Do every run that has no result yet. Several processes may do this at the same time.

    A run that fails does not stop the others.

    Args:
        study: what to compare.
        folder: the study's folder; a study that was stopped goes on.
        progress: receives each stage and step of the current run; None shows nothing.
        told: called before each run with the number of finished runs, of all runs, and its name;
            and with `MEASURING` as the name when speed is measured.

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
            time.sleep(1.0)  # other processes do the rest; wait in case one dies
    write_results(folder)
    if study.speed and not failed:
        if told is not None:
            told(total, total, MEASURING)
        failed = measured(study, places, progress or Silent())
    return failed


def undone(places: Places, job: Job, failed: Collection[str] = ()) -> list[str]:
    """The runs of a job that have no result and have not failed."""
    return [name for name in job.runs if name not in failed and not places.has(name)]


def do_job(study: StudySettings, places: Places, job: Job, progress: Progress) -> bool:
    """Do the runs of a job, unless they are done or another process does them.

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
            "speed": False,  # measured at the end, when nothing runs beside it
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


def _starts_from_base(settings: RunSettings) -> bool:
    """Whether a run starts from the fine-tuned model, or learns from it."""
    pruner, training = find_pruner(settings.method), settings.training
    taught = training.distil is not None and not pruner.teaches_itself
    return settings.starts_trained or taught or pruner.is_post_hoc() or pruner.keeps_all


def _ranked(
    places: Places, settings: RunSettings, base: Path | None, progress: Progress
) -> Path | None:
    """The ranking that serves every number of heads; None for methods without one."""
    if settings.asks is not None:  # which may change the units, or the examples to measure on
        return None
    pruner = make_pruner(settings.method, settings.keep, settings.settings, seed=settings.seed)
    if settings.keep is None or not pruner.ranks_once:
        return None
    ranking = places.ranking(settings)
    with places.lock(ranking.stem):
        sweep(ranking)
        # Ranked down to the last head. Its best K are those that a chain which stops at K keeps,
        # because heads that leave together are ranked by the scores they had.
        if not ranking.exists():
            source = str(base or settings.model)
            rank_heads(settings, source, ranking, progress)
    return ranking


def why(error: Exception) -> str:
    """Why a run failed, in a line."""
    known = isinstance(error, HeadcountError)
    return str(error) if known else f"{type(error).__name__}: {first_line(error)}"


def measured(study: StudySettings, places: Places, progress: Progress) -> dict[str, str]:
    """Measure the speed of every run that has none; returns why that failed, or nothing."""
    try:
        time_runs(study, places, progress)
    except Exception as error:  # the results exist already, and must be shown
        return {"the measuring of speed": why(error)}
    return {}
