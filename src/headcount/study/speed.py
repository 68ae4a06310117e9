"""How fast the models of a study are, measured when all runs are done and nothing else runs.

Speed depends on which heads are left, not on the weights, so the weights of a run are not needed.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

from accelerate import PartialState
from filelock import Timeout
from torch import nn
from transformers import PreTrainedModel

from headcount.heads.mask import MASK_FILE, HeadMask
from headcount.loading.origin import CARD
from headcount.pruners.methods import UNPRUNED
from headcount.runs.card import write_card
from headcount.runs.measure import measure, weight_bytes
from headcount.runs.progress import Progress
from headcount.runs.result import RunResult
from headcount.runs.run import batches_of
from headcount.runs.settings import RunSettings
from headcount.study.places import Places
from headcount.study.plan import StudySettings
from headcount.surgery.remove import remove_heads
from headcount.tasks.registry import make_task

TIMED_AT_ONCE = 1e9  # bytes of the models that are timed in turn; two are timed also if larger
MEASURING = "measuring speed"
Runs = dict[str, RunSettings]  # by the names of their folders


def time_runs(study: StudySettings, places: Places, progress: Progress) -> None:
    """Measure how fast each finished run's model is, unless another process does it."""
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
