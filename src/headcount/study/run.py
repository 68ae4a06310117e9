"""Run a study: every run once, shared work once, by one process or by several at a time.

What is done is in the study's folder (see `Places`), and locks there keep processes apart. Speed is
measured at the end, when nothing else runs.
"""

from __future__ import annotations

import copy
import hashlib
import json
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from accelerate import PartialState
from filelock import FileLock, Timeout
from torch import nn
from transformers import PreTrainedModel

from headcount.atomic import refuse_bad_output, sweep, write_text
from headcount.errors import HeadcountError, Stopped
from headcount.heads.mask import MASK_FILE, HeadMask
from headcount.loading.folder import first_line
from headcount.loading.origin import CARD
from headcount.pruners.methods import UNPRUNED, find_pruner, make_pruner
from headcount.pruners.settings import AFTER_THE_CHOICE
from headcount.runs.base_model import base_settings, fine_tune_base
from headcount.runs.card import write_card
from headcount.runs.measure import measure, weight_bytes
from headcount.runs.progress import Progress, Silent
from headcount.runs.prune import prune, prune_many
from headcount.runs.result import FILE as RESULT
from headcount.runs.result import RunResult
from headcount.runs.run import batches_of
from headcount.runs.settings import ASKS, RunSettings
from headcount.runs.stages import rank_heads
from headcount.runs.unfinished import (
    UNFINISHED,
    discard,
    first_change,
    refuse_other_settings,
)
from headcount.study.plan import SETTINGS, Job, StudySettings
from headcount.study.results import FILE as RESULTS
from headcount.study.results import write_results
from headcount.surgery.remove import remove_heads
from headcount.tasks.registry import make_task

STALE = 3600.0  # seconds after which what another process was writing is taken for dead
PARTS = ("runs", "bases", "rankings", "locks")
TIMED_AT_ONCE = 1e9  # bytes of the models that are timed in turn; two are timed also if larger
MEASURING = "measuring speed"
Runs = dict[str, RunSettings]  # by the names of their folders


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


def open_study(study: StudySettings, folder: Path) -> Places:
    """Make the study's folder, or check that the one that exists belongs to this study."""
    settings = json.loads(json.dumps(asdict(study)))
    known = folder / SETTINGS
    refuse_bad_output(folder)
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
        # More methods, numbers or seeds only add runs, and speed is measured after all runs.
        may_grow = dict.fromkeys(("methods", "keep", *ASKS, "seeds", "settings", "speed"))
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
        for file in (known, folder / RESULTS):
            sweep(file, older_than=STALE)
        for left in folder.glob(f"*/*{UNFINISHED}"):
            if left.with_suffix("").is_dir():  # finished; a kill came just before it was removed
                discard(left)
        write_text(known, json.dumps(settings, indent=2) + "\n")
    except OSError as error:
        raise HeadcountError(f"{folder} cannot be written: {error.strerror or error}") from error
    return Places(folder)


@dataclass(frozen=True)
class Places:
    """Where in its folder a study keeps things."""

    folder: Path

    def run(self, name: str) -> Path:
        """The folder of a run."""
        return self.folder / "runs" / name

    def has(self, name: str) -> bool:
        """Whether a run is finished: its result is written last."""
        return (self.run(name) / RESULT).is_file()

    def base(self, study: StudySettings, run: RunSettings) -> Path:
        """The folder of the fine-tuned model that pipelined methods start from.

        All entries with the same seed share it, except those whose own training changes it.
        """
        wanted = base_settings(run)
        usual = base_settings(replace(run, training=study.training))
        ending = "" if wanted == usual else f"-{_digest(wanted)}"
        return self.folder / "bases" / f"seed{run.seed}{ending}"

    def ranking(self, run: RunSettings) -> Path:
        """The ranking for entries that score heads with these settings on this base model."""
        decides = _digest([_choosing(run.settings), base_settings(run)])
        return self.folder / "rankings" / f"{run.method}-seed{run.seed}-{decides}.json"

    def lock(self, name: str) -> FileLock:
        """A lock to hold while something is done; the system frees it when its process dies."""
        return FileLock(self.folder / "locks" / f"{name}.lock")


def _choosing(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a method that decide which heads are kept."""
    return {name: value for name, value in settings.items() if name not in AFTER_THE_CHOICE}


def _digest(content: object) -> str:
    """A short name for settings."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:8]


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


def time_runs(study: StudySettings, places: Places, progress: Progress) -> None:
    """Measure how fast each finished run's model is, unless another process does it.

    Speed depends on which heads are left, not on the weights. So the weights of a run are not
    needed.
    """
    lock = places.lock("speeds")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return
    try:
        untimed = _untimed(study, places)
        progress.begin(MEASURING, len(untimed))
        done = 0
        for runs in _by_batches(untimed):
            for _ in _timed(study, places, runs):
                done += 1
                progress.advance(done)
    finally:
        lock.release()


def _untimed(study: StudySettings, places: Places) -> Runs:
    """Finished runs without a speed, except the unpruned model, which is its own measure."""
    return {
        name: run
        for name, run in study.runs().items()
        if run.method != UNPRUNED
        and places.has(name)
        and RunResult.load(places.run(name)).examples_per_second is None
    }


def _by_batches(runs: Runs) -> Iterator[Runs]:
    """Groups of runs that are evaluated on the same batches."""
    groups: dict[str, Runs] = {}
    for name, run in runs.items():
        data = asdict(replace(run.data_settings(), weights_seed=0))
        key = json.dumps([data, run.training.eval_batch_size], sort_keys=True, default=str)
        groups.setdefault(key, {})[name] = run
    yield from groups.values()


def _timed(study: StudySettings, places: Places, runs: Runs) -> Iterator[str]:
    """Time the models of these runs and write their figures; yields the name of each run then."""
    first = next(iter(runs.values()))
    task = make_task(first.task, first.data_settings())
    source = task.model_folder(first.model)
    processor = task.load_processor(source)
    base = places.base(study, first)
    whole = task.load_model(str(base) if base.exists() else source, processor).eval()
    nn.Module.to(whole, PartialState().device)
    data = next(iter(task.evaluation_data(processor).values()))
    collator = task.collator(processor, whole)
    size = first.training.eval_batch_size or task.examples_at_once(data)
    batches = batches_of(data, size, whole, collator)
    at_once = max(int(TIMED_AT_ONCE / weight_bytes(whole)) - 1, 1)
    for start in range(0, len(runs), at_once):
        some = list(runs.items())[start : start + at_once]
        pruned = [_cut(whole, places.run(name)) for name, _ in some]
        measurements = measure(whole, pruned, batches, task.generates)
        for (name, run), timed in zip(some, measurements, strict=True):
            folder = places.run(name)
            result = replace(
                RunResult.load(folder),
                examples_per_second=timed.examples_per_second,
                generated_per_second=timed.generated_per_second,
                tokens_per_second=timed.tokens_per_second,
            )
            if (folder / CARD).is_file():
                write_card(folder, name, task.auto_class, run, result)
            result.save(folder)
            yield name


def _cut(whole: PreTrainedModel, folder: Path) -> PreTrainedModel:
    """A copy of a model with the heads that a run kept."""
    small = copy.deepcopy(whole)
    remove_heads(small, HeadMask.load(folder / MASK_FILE))
    return small
