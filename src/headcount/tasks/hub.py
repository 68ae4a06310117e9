"""Load data sets from the hub, and from folders that `datasets` saved."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from datasets import DatasetDict, load_dataset, load_from_disk

from headcount.errors import HeadcountError
from headcount.loading.folder import first_line
from headcount.tasks.base import DataSettings
from headcount.tasks.tables import Table, table_of

_Part = TypeVar("_Part")


def chosen(
    parts: Mapping[str, _Part], settings: DataSettings, validation: Sequence[str]
) -> dict[str, _Part]:
    """The part to train on, as `train`, and those to evaluate on, by their names.

    Args:
        parts: all parts of a data set by name.
        settings: may name the parts to train and to evaluate on; otherwise usual names are used.
        validation: usual names of parts to evaluate on; the first that exists is taken.
    """
    names = settings.evaluate or tuple(name for name in validation if name in parts)[:1]
    wanted = {"train": settings.train or "train", **{name: name for name in names}}
    for part in wanted.values():
        if part not in parts:
            raise HeadcountError(
                f"the data set {settings.data} has no part {part}; it has {', '.join(parts)}"
            )
    return {name: parts[part] for name, part in wanted.items()}


def load(name: str, config: str | None) -> dict[str, Callable[[], Table]]:
    """The parts of a data set on the hub, or in the hub's cache on this computer.

    Args:
        name: the name on the hub, such as `nyu-mll/glue`.
        config: the configuration to load; ignored if the data set has none of this name.

    Raises:
        HeadcountError: the data set does not exist, cannot be reached, or has several
            configurations.
    """
    try:
        try:
            return _parts(load_dataset(name, config), name)
        except ValueError as error:
            if not config or "BuilderConfig" not in str(error):
                raise
            return _parts(load_dataset(name), name)
    # Invalid names, servers that do not answer, files that cannot be parsed: these errors have no
    # common type.
    except Exception as error:
        raise HeadcountError(
            f"{name} is no file or folder here, and as a data set it cannot be loaded from the "
            f"hub: {first_line(error)}; give a folder with the data, or the name of a data set "
            "while connected"
        ) from error


def load_saved(folder: Path) -> dict[str, Callable[[], Table]]:
    """The parts of a folder that `DatasetDict.save_to_disk` wrote."""
    try:
        return _parts(load_from_disk(str(folder)), str(folder))
    except Exception as error:  # of any type, as above
        raise HeadcountError(
            f"{folder} has a dataset_dict.json but cannot be loaded with `datasets`: "
            f"{first_line(error)}; save the data set again"
        ) from error


def _parts(data: Any, source: str) -> dict[str, Callable[[], Table]]:
    if not isinstance(data, DatasetDict):
        data = {"train": data}
    return {
        name: partial(table_of, dataset, f"{source} ({name})") for name, dataset in data.items()
    }
