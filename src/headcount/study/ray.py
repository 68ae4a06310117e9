"""Run a study on a Ray cluster: each job is a task of its own, with retries.

A job is one run, or the runs for several numbers of heads that share a training. All machines must
see the same folder. Locks and results work as with several processes on one machine, so a run that
Ray starts twice is done once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from headcount.errors import HeadcountError
from headcount.runs.progress import Silent
from headcount.study.places import Places, open_study
from headcount.study.plan import StudySettings
from headcount.study.results import write_results
from headcount.study.run import do_job, measured, undone, why

RETRIES = 3  # times that Ray starts a job again whose worker died


def run_on_ray(
    study: StudySettings,
    folder: Path,
    address: str | None = None,
    cpus: float = 1.0,
    gpus: float = 0.0,
    told: Callable[[int, int, str], None] | None = None,
) -> dict[str, str]:
    """Send every run that has no result yet to Ray, and wait for all.

    Args:
        study: what to compare.
        folder: the study's folder, reachable from every machine; a study that was stopped goes on.
        address: the address of the cluster; None starts Ray on this machine.
        cpus: CPUs that each run needs.
        gpus: GPUs that each run needs; 0 trains on CPUs.
        told: called with the number of finished runs, of all runs, and the last one's name.

    Returns:
        Why runs failed, by their names.
    """
    try:
        import ray
    except ImportError:
        raise HeadcountError(
            "Ray is not installed; run: pip install 'headcount[ray]', or leave out --on ray"
        ) from None
    places = open_study(study, folder.absolute())
    jobs = list(study.jobs())
    total = sum(len(job.runs) for job in jobs)
    started = not ray.is_initialized()
    if started:
        try:
            ray.init(address=address, log_to_driver=False, configure_logging=False)
        except (ConnectionError, ValueError) as error:
            raise HeadcountError(
                f"there is no Ray cluster at {address}: {error}; give the address of one that runs"
            ) from error
    try:
        remote = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=RETRIES)(_run_one)
        pending = {
            remote.remote(study, places.folder, job.name): job
            for job in jobs
            if undone(places, job)
        }
        failed: dict[str, str] = {}
        while pending:
            (reference,), _ = ray.wait(list(pending), num_returns=1)
            job = pending.pop(reference)
            try:
                reason = ray.get(reference)
            except ray.exceptions.RayError as error:
                reason = f"its worker was lost: {str(error).splitlines()[0]}"
            if reason:
                failed |= dict.fromkeys(undone(places, job), reason)
            write_results(places.folder)
            if told is not None:
                told(total - sum(len(left.runs) for left in pending.values()), total, job.name)
        write_results(places.folder)
        if study.speed and not failed:
            reference = ray.remote(num_cpus=cpus, num_gpus=gpus)(_time_all).remote(study, places)
            failed = ray.get(reference)
        return failed
    finally:
        if started:
            ray.shutdown()


def _run_one(study: StudySettings, folder: Path, name: str) -> str:
    """Do one job; returns why it failed, or an empty text."""
    _be_quiet()
    places = Places(folder)
    job = next(job for job in study.jobs() if job.name == name)
    try:
        while undone(places, job):
            if not do_job(study, places, job, Silent()):
                time.sleep(1.0)  # another process does it; wait in case that dies
    except Exception as error:
        return why(error)
    return ""


def _time_all(study: StudySettings, places: Places) -> dict[str, str]:
    """Measure all speeds; returns why that failed, if it did."""
    _be_quiet()
    return measured(study, places, Silent())


def _be_quiet() -> None:
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
