"""Tasks by the names that the command line knows."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

from headcount.errors import HeadcountError
from headcount.tasks.base import DataSettings, Task

GLUE_NAMES = ("mnli", "sst2", "cola", "mrpc", "rte", "qnli", "qqp", "stsb")

# Module and class of each task, imported when it is asked for: each needs other packages.
CLASSES: dict[str, tuple[str, str]] = {
    **dict.fromkeys(GLUE_NAMES, ("classification", "GlueTask")),
    "classification": ("classification", "Classification"),
    "translation": ("translation", "Translation"),
    "language-modelling": ("language_modelling", "LanguageModelling"),
    "image-classification": ("images", "ImageClassification"),
}


def make_task(name: str, settings: DataSettings) -> Task:
    """Make a task, which reads and checks its data at once.

    Args:
        name: one of the tasks of GLUE, or the name of a kind of task.
        settings: which data.

    Raises:
        HeadcountError: there is no such task, its packages are not installed, or its data cannot
            be read.
    """
    if name not in CLASSES:
        raise HeadcountError(f"there is no task {name!r}; the tasks are {', '.join(CLASSES)}")
    module, class_name = CLASSES[name]
    try:
        cls: Any = getattr(import_module(f"headcount.tasks.{module}"), class_name)
    except ModuleNotFoundError as error:
        raise HeadcountError(
            f"the task {name} needs the package {error.name}, which is not installed; "
            "run: pip install 'headcount[tasks]'"
        ) from error
    make: Callable[[DataSettings], Task] = partial(cls, name) if name in GLUE_NAMES else cls
    return make(settings)
