"""Make a task by its name on the command line."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from headcount.errors import HeadcountError

if TYPE_CHECKING:
    from headcount.tasks.base import DataSettings, Task

GLUE_NAMES = ("mnli", "sst2", "cola", "mrpc", "rte", "qnli", "qqp", "stsb")
LANGUAGE_MODELLING, EMBEDDING = "language-modelling", "embedding"

# Module and class of each task. A module is imported when its task is made, because each one
# needs other packages.
CLASSES: dict[str, tuple[str, str]] = {
    **dict.fromkeys(GLUE_NAMES, ("classification", "GlueTask")),
    "classification": ("classification", "Classification"),
    "translation": ("translation", "Translation"),
    LANGUAGE_MODELLING: ("language_modelling", "LanguageModelling"),
    "lambada": ("lambada", "Lambada"),
    EMBEDDING: ("embedding", "Embedding"),
    "image-classification": ("image_classification", "ImageClassification"),
}


def make_task(name: str, settings: DataSettings) -> Task:
    """Make a task; it reads and checks its data right away.

    Args:
        name: a task of GLUE, such as `mnli`, or a kind of task, such as `translation`.
        settings: which data to use.

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
        extra = "sentences" if name == EMBEDDING else "tasks"
        raise HeadcountError(
            f"the task {name} needs the package {error.name}, which is not installed; "
            f"run: pip install 'headcount[{extra}]'"
        ) from error
    make: Callable[[DataSettings], Task] = partial(cls, name) if name in GLUE_NAMES else cls
    return make(settings)
