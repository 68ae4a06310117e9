"""Time the pruned models of a study one after another, when nothing else of it is running."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from accelerate import PartialState
from filelock import Timeout
from torch import nn

from headcount.heads.mask import HeadMask
from headcount.runs.card import CARD, write_card
from headcount.runs.choose import batches_of
from headcount.runs.measure import measure
from headcount.runs.output import MASK
from headcount.runs.progress import Progress
from headcount.runs.result import RunResult
from headcount.runs.settings import RunSettings
from headcount.study.plan import UNPRUNED, StudySettings
from headcount.surgery.remove import remove_heads
from headcount.tasks.registry import make_task

if TYPE_CHECKING:
    from headcount.study.run import Places

Runs = dict[str, RunSettings]


def time_runs(study: StudySettings, places: Places, progress: Progress) -> None:
    """Measure how fast each finished run's model is, unless another process is at it.

    How fast a model is depends on which heads are left, and not on its weights, so that none need
    have been kept.
    """
    lock = places.lock("speeds")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return
    try:
        untimed = _untimed(study, places)
        progress.begin("measuring speed", len(untimed))
        done = 0
        for runs in _alike(untimed):
            for _ in _timed(study, places, runs):
                done += 1
                progress.advance(done)
    finally:
        lock.release()


def _untimed(study: StudySettings, places: Places) -> Runs:
    return {
        name: run
        for name, run in study.runs().items()
        if run.method != UNPRUNED
        and places.has(name)
        and RunResult.load(places.run(name)).examples_per_second is None
    }


def _alike(runs: Runs) -> Iterator[Runs]:
    """Runs that are evaluated on the same batches."""
    groups: dict[str, Runs] = {}
    for name, run in runs.items():
        data = asdict(replace(run.data_settings(), weights_seed=0))
        key = json.dumps([data, run.training.eval_batch_size], sort_keys=True, default=str)
        groups.setdefault(key, {})[name] = run
    yield from groups.values()


def _timed(study: StudySettings, places: Places, runs: Runs) -> Iterator[str]:
    """Time each of these runs, and write its figures; yields its name."""
    first = next(iter(runs.values()))
    task = make_task(first.task, first.data_settings())
    source = task.model_folder(first.model)
    processor = task.load_processor(source)
    base = places.base(study, first)
    whole = task.load_model(str(base) if base.exists() else source, processor).eval()
    nn.Module.to(whole, PartialState().device)
    data = next(iter(task.evaluation_data(processor).values()))
    collator = task.collator(processor, whole)
    batches = batches_of(data, first.training.eval_batch_size, whole, collator)
    for name, run in runs.items():
        folder = places.run(name)
        small = copy.deepcopy(whole)
        remove_heads(small, HeadMask.load(folder / MASK))
        timed = measure(whole, small, batches, task.generates)
        result = replace(
            RunResult.load(folder),
            examples_per_second=timed.examples_per_second,
            generated_per_second=timed.generated_per_second,
        )
        if (folder / CARD).is_file():
            write_card(folder, name, task.auto_class, run, result)
        result.save(folder)
        yield name
