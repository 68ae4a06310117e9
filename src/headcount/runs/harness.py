"""Evaluate language models on the tasks of lm-evaluation-harness (the extra `harness`).

The harness has its own data, prompts and metrics. It gets the model as an object, so a pruned
folder or a masked model is evaluated like any other.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from accelerate import PartialState
from torch import nn
from transformers import AutoModelForCausalLM, PreTrainedModel

from headcount.errors import HeadcountError
from headcount.gates import masked
from headcount.heads.find import find_heads
from headcount.heads.mask import HeadMask
from headcount.loading.folder import first_line
from headcount.runs.progress import Progress
from headcount.runs.result import Scores
from headcount.runs.stages import chance_untouched
from headcount.tasks.base import Processor
from headcount.tasks.models import load_for, load_tokenizer

_AT_ONCE = 4  # requests per batch: those of some tasks have a thousand tokens and more


def evaluate_on_harness(
    model: str,
    tasks: Sequence[str],
    mask: HeadMask | None,
    progress: Progress,
    *,
    folder: str | None = None,
    limit: int | None = None,
    batch_size: int | None = None,
) -> Scores:
    """The scores of a model on tasks of lm-evaluation-harness.

    Args:
        model: a model folder, pruned or not, or a name on the hub.
        tasks: names of tasks, groups or tags, such as `piqa`.
        mask: the heads to keep open; None leaves the model as it is.
        progress: receives the stages, for a progress bar.
        folder: has YAML files of tasks of your own; None for the harness's tasks alone.
        limit: use only this many examples of each task; None for all.
        batch_size: requests per batch; None for 4.

    Returns:
        Metrics by task and name.
    """
    refuse_harness(tasks, folder)
    processor = load_tokenizer(model)
    loaded = load_for(AutoModelForCausalLM, model, "lm-evaluation-harness", whole=True)
    nn.Module.to(loaded, PartialState().device)
    with masked(loaded, HeadMask.all(find_heads(loaded)) if mask is None else mask):
        return harness_scores(
            loaded, processor, tasks, progress, folder=folder, limit=limit, batch_size=batch_size
        )


def harness_scores(
    model: PreTrainedModel,
    processor: Processor,
    tasks: Sequence[str],
    progress: Progress,
    *,
    folder: str | None = None,
    limit: int | None = None,
    batch_size: int | None = None,
) -> Scores:
    """The scores of a loaded model as it is now; for the arguments see `evaluate_on_harness`."""
    manager = _manager(tuple(tasks), folder)
    from lm_eval import simple_evaluate
    from lm_eval.models.huggingface import HFLM

    progress.begin(f"evaluating on {', '.join(tasks)}")
    with _harness(tasks), chance_untouched():  # the harness sets the seeds of all generators
        wrapped = HFLM(pretrained=model, tokenizer=processor, batch_size=batch_size or _AT_ONCE)
        found: Any = simple_evaluate(
            model=wrapped, tasks=list(tasks), limit=limit, task_manager=manager,
            bootstrap_iters=0, log_samples=False,
        )  # fmt: skip
    return {task: _metrics(scores) for task, scores in found["results"].items()}


@contextmanager
def _harness(tasks: Sequence[str]) -> Iterator[None]:
    """Tell what goes wrong in the harness in one sentence."""
    try:
        yield
    # Data that cannot be downloaded, a template that does not fit it: errors of any type.
    except Exception as error:
        raise HeadcountError(
            f"lm-evaluation-harness cannot evaluate {', '.join(tasks)}: {first_line(error)}; check "
            "the task and its data, which come from the hub unless its YAML file says otherwise"
        ) from error


def _metrics(scores: Mapping[str, Any]) -> dict[str, float]:
    """The metrics of a task, without their errors and names of filters that do nothing."""
    found = {}
    for key, value in scores.items():
        metric, _, filtered = key.partition(",")
        if not filtered or metric.endswith("_stderr") or not isinstance(value, int | float):
            continue
        found[metric if filtered == "none" else f"{metric}, {filtered}"] = float(value)
    return found


def harness_signature(task: str, limit: int | None) -> str:
    """What a published score of the harness must say about itself."""
    some = "" if limit is None else f"|limit:{limit}"
    return f"data:{task}|lm-eval:{version('lm_eval')}{some}"


def refuse_harness(tasks: Sequence[str], folder: str | None) -> None:
    """Refuse now what the harness would refuse after hours of training.

    Raises:
        HeadcountError: it is not installed, does not know a task, or cannot read the task's data.
    """
    if not tasks:
        return
    manager = _manager(tuple(tasks), folder)
    with _harness(tasks):
        manager.load(list(tasks))


@functools.cache
def _manager(tasks: tuple[str, ...], folder: str | None) -> Any:
    """What finds the tasks of the harness and of a folder; it reads a thousand files, so once."""
    try:
        from lm_eval.tasks import TaskManager
    except ImportError as error:
        raise HeadcountError(
            f"lm-evaluation-harness is not installed ({first_line(error)}); run: pip install "
            "'headcount[harness]'"
        ) from None
    if folder is not None and not Path(folder).is_dir():
        raise HeadcountError(
            f"there is no folder {folder} with tasks; give one with YAML files of "
            "lm-evaluation-harness"
        )
    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    try:
        if folder is not None:
            own = TaskManager(include_path=folder, include_defaults=False)
            if all(own.match_tasks([task]) for task in tasks):
                return own
        manager = TaskManager(include_path=folder)
    except Exception as error:  # a YAML file in the folder can hold anything
        raise HeadcountError(
            f"the tasks in {folder} cannot be read: {first_line(error)}; mend its YAML files"
        ) from error
    for task in tasks:
        if not manager.match_tasks([task]):
            raise HeadcountError(
                f"lm-evaluation-harness has no task {task!r}; `lm-eval ls tasks` lists them, and "
                "harness_tasks names a folder with your own"
            )
    return manager
