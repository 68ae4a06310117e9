"""The parts of a data set by name, in a folder or on the hub.

The parts of a folder have the names of its files: `train_subset.tsv.gz` is `train_subset`. Shards
such as `train-00000-of-00002.parquet` are one part `train`. A part is read when it is asked for.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from pathlib import Path
from typing import Any

from headcount.errors import HeadcountError
from headcount.tasks import hub
from headcount.tasks.files import file_ending, find_data, list_folder
from headcount.tasks.tables import READERS, Table, named, read_table

SHARD = re.compile(r"-\d{5}-of-\d{5}$")


class Splits:
    """The parts of a data set, by name.

    Args:
        data: where they are, for messages.
        readers: for each part, the function that reads it.
        folder: where to look up names of files, before the working folder; None for the hub.
        read_file: reads a file that is given by its path.
    """

    def __init__(
        self,
        data: str,
        readers: Mapping[str, Callable[[], Table]],
        folder: Path | None = None,
        read_file: Callable[[Path], Table] = read_table,
    ) -> None:
        self.data = data
        self.readers = dict(readers)
        self.folder = folder
        self.read_file = read_file

    def find(self, *names: str) -> str | None:
        """The part with one of these names, or whose name begins with one of them.

        Raises:
            HeadcountError: several parts begin with one of these names.
        """
        for name in names:
            if name in self.readers:
                return name
        # "dev" finds "dev_matched", but "dev_m" does not: no letter may follow the name.
        begin = re.compile("|".join(f"{re.escape(name)}(?![a-z])" for name in names), re.IGNORECASE)
        found = [part for part in self.readers if begin.match(part)]
        if len(found) > 1:
            raise HeadcountError(
                f"{self.data} has several parts that may be {names[0]}: "
                f"{', '.join(sorted(found))}; name the one to use"
            )
        return found[0] if found else None

    def read(self, name: str) -> tuple[str, Table]:
        """Read a part by its name, by the name of its file in the folder, or by any path."""
        if name in self.readers:
            return name, self.readers[name]()
        for path in (self.folder / name if self.folder else None, Path(os.path.expanduser(name))):
            if path is not None and os.path.isfile(path):
                return part_name(path), self.read_file(path)
        if not self.readers:
            raise HeadcountError(f"there is no file {name}; check the path")
        raise HeadcountError(
            f"there is no file {name} and no part of {self.data} is called so; its parts are "
            f"{', '.join(sorted(self.readers))}: name one of these, or a file"
        )

    def missing(self, what: str, further: str) -> HeadcountError:
        """The error for a part that nobody named, and that has no usual name.

        Args:
            what: is missing, as `data for training was`.
            further: what to do.
        """
        found = (
            f"none was found by its name in {self.data}, which has {named(sorted(self.readers))}"
        )
        where = f", and {found}" if self.readers else ""
        return HeadcountError(f"no {what} named{where}; {further}")

    def read_evaluation(self, names: Sequence[str]) -> dict[str, Table]:
        """Read several parts; for the names see `read`."""
        tables: dict[str, Table] = {}
        for name in names:
            part, table = self.read(name)
            if part in tables:
                raise HeadcountError(
                    f"two evaluation sets are called {part}: {tables[part].source} and "
                    f"{table.source}; rename one of the files"
                )
            tables[part] = table
        return tables


def open_splits(
    data: str,
    *,
    config: str | None = None,
    kinds: Mapping[str, str] | None = None,
    names: Sequence[str] = (),
    skip_broken: bool = False,
) -> Splits:
    """Open a data set.

    Args:
        data: a file, a folder, or a name on the hub; empty if all parts are given by their paths.
        config: the configuration on the hub, such as `mnli` of `nyu-mll/glue`. A folder inside
            `data` that has this name is used instead of `data`.
        kinds: more endings that mean a table here, each with the ending to read it as.
        names: names of columns without a header; see `read_table`.
        skip_broken: whether to leave out broken rows; see `read_table`.
    """
    readable = {ending: ending for ending in READERS} | dict(kinds or {})

    def read_file(path: Path) -> Table:
        kind = readable.get(file_ending(path))
        return read_table(path, kind=kind, names=names, skip_broken=skip_broken)

    if not data:
        return Splits(data, {}, None, read_file)
    path = find_data(data, readable)
    if path is None:
        return Splits(data, hub.load(data, config), None, read_file)
    if path.is_file():
        readers = {part_name(path): partial(read_file, path)}
        return Splits(data, readers, path.parent, read_file)
    folder = _part_of_folder(path, config)
    if (folder / "dataset_dict.json").is_file():
        return Splits(str(folder), hub.load_saved(folder), folder, read_file)
    files = [file for sub in (folder, folder / "data") for file in _tables(sub, readable)]
    groups: dict[str, list[Path]] = {}
    for file in files:
        groups.setdefault(part_name(file), []).append(file)
    readers = {name: partial(_read_group, group, read_file) for name, group in groups.items()}
    if not readers:
        folders = named(f.name for f in list_folder(folder) if f.is_dir()) or "no folders"
        raise HeadcountError(
            f"{folder} has no tables: no file ends in {', '.join(readable)}, or in one of these "
            f"and .gz, and it has {folders}; give the folder that the files are in"
        )
    return Splits(str(folder), readers, folder, read_file)


def part_name(path: Path) -> str:
    """The name of a part of a data set, from the name of its file."""
    return SHARD.sub("", path.name.removesuffix(".gz").removesuffix(file_ending(path)))


def _part_of_folder(folder: Path, config: str | None) -> Path:
    """For the configuration `sst2`, the folder `SST-2` or `sst2` inside; else the folder itself."""
    for path in list_folder(folder):
        if config and path.is_dir() and re.sub(r"[^a-z0-9]", "", path.name.lower()) == config:
            return path
    return folder


def _tables(folder: Path, kinds: Mapping[str, Any]) -> list[Path]:
    if not folder.is_dir():
        return []
    return [f for f in list_folder(folder) if f.is_file() and file_ending(f) in kinds]


def _read_group(files: list[Path], read_file: Callable[[Path], Table]) -> Table:
    shards = [file for file in files if SHARD.search(file.name.split(".")[0])]
    if len(shards) == len(files):
        return reduce(Table.joined, map(read_file, shards))
    plain = [file for file in files if file.suffix != ".gz"] or files
    if len(plain) > 1:
        raise HeadcountError(
            f"{plain[0]} and {plain[1].name} have the same name except for the ending; name the "
            "one to use"
        )
    return read_file(plain[0])
