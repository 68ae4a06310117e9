"""Sentence pairs for translation, from line-aligned files, tables or data sets of the hub."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from headcount.errors import HeadcountError
from headcount.tasks import hub
from headcount.tasks.base import DataSettings
from headcount.tasks.files import file_ending, find_data, find_text, list_folder, read_lines
from headcount.tasks.prepared import draw
from headcount.tasks.tables import READERS, Table, as_texts, named, read_table

VALIDATION = ("val", "valid", "validation", "dev")
HELD_OUT = "held_out"


@dataclass(frozen=True)
class Pairs:
    """Sentences and their translations, in the order of the data.

    Attributes:
        sources: the sentences to translate.
        targets: their translations, exactly as in the data.
        rows: the row of each pair in the data.
        dropped: how many pairs were left out because one side is empty.
    """

    sources: list[str]
    targets: list[str]
    rows: list[int] = field(default_factory=list)
    dropped: int = 0

    def __post_init__(self) -> None:
        if not self.rows:
            self.rows.extend(range(len(self.sources)))

    def __len__(self) -> int:
        return len(self.sources)

    def select(self, rows: list[int]) -> Pairs:
        """Only these rows, in this order."""
        sources = [self.sources[row] for row in rows]
        targets = [self.targets[row] for row in rows]
        return Pairs(sources, targets, [self.rows[row] for row in rows], self.dropped)

    def complete(self) -> Pairs:
        """Only the pairs with both sides; an empty side would teach the model to say nothing."""
        rows = [
            row for row, pair in enumerate(zip(self.sources, self.targets, strict=True))
            if all(side.strip() for side in pair)
        ]  # fmt: skip
        return replace(self.select(rows), dropped=len(self) - len(rows))

    def draw(self, count: int | None, seed: int) -> Pairs:
        """Draw `count` pairs with the seed, in the order of the data; None takes all."""
        return self.select(draw(len(self), count, seed))

    def hold_out(self, count: int, seed: int) -> tuple[Pairs, Pairs]:
        """Pairs to train on, and `count` others that share no sentence with them."""
        others = self.draw(count, seed)
        sources, targets = set(others.sources), set(others.targets)
        rows = [
            row for row, (source, target) in enumerate(zip(self.sources, self.targets, strict=True))
            if source not in sources and target not in targets
        ]  # fmt: skip
        return self.select(rows), others


def read_pairs(
    settings: DataSettings, columns: tuple[str, ...] = (), config: str | None = None
) -> dict[str, Pairs]:
    """All sentence pairs that the settings name: `train` first, then the evaluation sets.

    Args:
        settings: which data. `data` is a folder with files such as `train.de` and `train.en` or
            `train.tsv`, one such table, or a data set on the hub.
        columns: names of the columns of tables that have no header.
        config: the configuration of a data set on the hub; None for its only one.

    Raises:
        HeadcountError: no direction is given, or a file is missing, damaged or misaligned.
    """
    if not settings.source or not settings.target or settings.source == settings.target:
        raise HeadcountError(
            f"translation from {settings.source} into {settings.target}; give two languages as "
            "source and target: the endings of the files (de for train.de), or the columns' names"
        )
    reader = _Reader(settings.source, settings.target, columns)
    path = find_data(settings.data, READERS) if settings.data else Path()
    if path is None:
        return _read_hub(settings, reader, config)
    if not (settings.data or settings.train):
        raise HeadcountError("no training pairs are named; name their file or files with --train")
    folder = path if path.is_dir() else path.parent
    names = settings.evaluate
    if settings.data and path.is_dir() and not names:
        names = tuple(name for name in VALIDATION if reader.files(folder, name))[:1]
    train = settings.train or ("train" if path.is_dir() else path.name)
    sets = {"train": reader.read(folder, os.path.expanduser(train))}
    for name in names:
        short = Path(name).name
        if short in sets:
            raise HeadcountError(f"two sets are called {short}; rename the files of one of them")
        sets[short] = reader.read(folder, os.path.expanduser(name))
    return sets


@dataclass(frozen=True)
class _Reader:
    """Reads sets of pairs in one direction.

    Attributes:
        source: the language to translate from.
        target: the language to translate into.
        columns: names of the columns of tables that have no header.
    """

    source: str
    target: str
    columns: tuple[str, ...]

    def files(self, folder: Path, name: str) -> list[Path]:
        """The two files of an aligned set, or its one table; empty if there is neither."""
        sides = [find_text(folder, f"{name}.{end}") for end in (self.source, self.target)]
        found = [side for side in sides if side]
        if len(found) == 2:
            return found
        for ending in ("", *READERS):
            table = find_text(folder, name + ending)
            if table and file_ending(table) in READERS:
                return [table]
        if found:
            other = f"{Path(name).name}.{self.target if sides[0] else self.source}"
            raise HeadcountError(
                f"{found[0]} has no partner: there is no {other} or {other}.gz beside it"
            )
        return []

    def read(self, folder: Path, name: str) -> Pairs:
        """The set of this name in the folder, or at this path."""
        files = self.files(folder, name)
        if not files:
            present = [p.name for p in list_folder(folder) if not p.name.startswith(".")]
            raise HeadcountError(
                f"{folder} has neither {name}.{self.source} with {name}.{self.target} nor a table "
                f"{name}.tsv (each may end in .gz); it has {', '.join(present[:8]) or 'nothing'}"
            )
        if len(files) == 1:
            return self.of_table(read_table(files[0], names=self.columns))
        sources, targets = (read_lines(file) for file in files)
        if len(sources) != len(targets):
            raise HeadcountError(
                f"{files[0]} has {len(sources)} lines but {files[1]} has {len(targets)}; "
                "line-aligned files have as many lines, fetch both again"
            )
        return Pairs(sources, targets)

    def of_table(self, table: Table) -> Pairs:
        """The two columns of a table, or the two languages in its column `translation`."""
        columns = table.columns
        rows = columns.get("translation")
        if rows and isinstance(rows[0], dict):
            columns = {name: [_side(row, name) for row in rows] for name in rows[0]}
        if self.source not in columns or self.target not in columns:
            raise HeadcountError(
                f"{table.source} has no columns {self.source!r} and {self.target!r}, it has "
                f"{named(columns)}; if that is no header, name the "
                "columns in their order with the option columns, for example "
                f"columns={self.target},{self.source}"
            )
        # A missing value counts as an empty side, like an empty line of a file.
        source, target = (
            as_texts(columns[name], name, table.source, missing="")
            for name in (self.source, self.target)
        )
        return Pairs(source, target)


def _side(row: Any, name: str) -> Any:
    """One language of a row of the column `translation`; None if it has none."""
    return row.get(name) if isinstance(row, dict) else None


def _read_hub(settings: DataSettings, reader: _Reader, config: str | None) -> dict[str, Pairs]:
    parts = hub.load(settings.data, config)
    wanted = hub.chosen(parts, settings, VALIDATION)
    return {name: reader.of_table(read()) for name, read in wanted.items()}
