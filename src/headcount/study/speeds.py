"""Time the pruned models of a study one after another, when nothing else of it is running."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING

from filelock import Timeout

from headcount.heads.mask import HeadMask
from headcount.runs.card import CARD, write_card
from headcount.runs.choose import batches_of
from headcount.runs.measure import measure
from headcount.runs.output import MASK
from headcount.runs.progress import Progress
from headcount.runs.result import RunResult
from headcount.runs.settings import RunSettings
from headcount.study.entry import UNPRUNED
from headcount.study.plan import StudySettings
from headcount.surgery.remove import remove_heads
from headcount.tasks.registry import make_task

if TYPE_CHECKING:
    from headcount.study.run import Places


def time_runs(study: StudySettings, places: Places, progress: Progress) -> None:
    """Measure how fast each finished run's model is, unless another process is at it.

    How fast a model is depends on which heads are left, and not on its weights, so that none need
    have been kept.
    """
    untimed = {
        name: run
        for name, run in study.runs().items()
        if run.method != UNPRUNED
        and places.has(name)
        and RunResult.load(places.run(name)).examples_per_second is None
    }
    if untimed:
        try:
            with places.lock("speeds").acquire(timeout=0):
                _time(study, places, untimed, progress)
        except Timeout:
            return


def _time(
    study: StudySettings, places: Places, runs: dict[str, RunSettings], progress: Progress
) -> None:
    first = next(iter(runs.values()))
    task = make_task(first.task, first.data_settings())
    source = task.model_folder(first.model)
    processor = task.load_processor(source)
    base = places.base(study, first)
    whole = task.load_model(str(base) if base.exists() else source, processor).eval()
    data = next(iter(task.evaluation_data(processor).values()))
    collator = task.collator(processor, whole)
    batches = batches_of(data, study.training.eval_batch_size, whole, collator)
    progress.begin("measuring speed", len(runs))
    for done, (name, run) in enumerate(runs.items(), 1):
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
        progress.advance(done)
