"""Sentence pairs for translation: line-aligned files, tables with tabs, data sets of the hub."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datasets import DatasetDict, load_dataset

from headcount.errors import HeadcountError
from headcount.tasks.base import DataSettings
from headcount.tasks.text_lines import find_text, read_lines

VALIDATION = ("val", "valid", "validation", "dev")
HELD_OUT = "held_out"


@dataclass(frozen=True)
class Pairs:
    """Sentences and their translations, in the order of the data.

    Attributes:
        sources: sentences to translate.
        targets: their translations, as they stand in the data.
        dropped: how many pairs were left out because a side of theirs is empty.
    """

    sources: list[str]
    targets: list[str]
    dropped: int = 0

    def __len__(self) -> int:
        return len(self.sources)

    def select(self, rows: list[int]) -> Pairs:
        """These rows in this order."""
        return Pairs(
            [self.sources[row] for row in rows], [self.targets[row] for row in rows], self.dropped
        )

    def complete(self) -> Pairs:
        """The pairs with both sides: an empty one would teach to answer with nothing."""
        rows = [
            row for row, pair in enumerate(zip(self.sources, self.targets, strict=True))
            if all(side.strip() for side in pair)
        ]  # fmt: skip
        kept = self.select(rows)
        return Pairs(kept.sources, kept.targets, len(self) - len(rows))

    def draw(self, count: int | None, seed: int) -> Pairs:
        """So many pairs, drawn with the seed, in the order of the data; None for all."""
        if count is None or count >= len(self):
            return self
        return self.select(sorted(random.Random(seed).sample(range(len(self)), count)))

    def hold_out(self, count: int, seed: int) -> tuple[Pairs, Pairs]:
        """Pairs to train on and so many others; no sentence of the others is trained on."""
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
        settings: `data` is a folder with files such as `train.de` and `train.en` or `train.tsv`,
            one such table, or a data set on the hub.
        columns: names of the columns of tables that have no header.
        config: which configuration of a data set on the hub.

    Raises:
        HeadcountError: the direction is not known, something is missing, damaged or misaligned.
    """
    if not settings.source or not settings.target or settings.source == settings.target:
        raise HeadcountError(
            f"translation from {settings.source} into {settings.target}; give two languages as "
            "source and target: the endings of the files (de for train.de), or the columns' names"
        )
    path = Path(settings.data).expanduser()
    if path.is_file():
        sets = {"train": _read_table(path, settings, columns)}
        return sets | {n: _read(path.parent, n, settings, columns) for n in settings.evaluate}
    if path.is_dir():
        return _read_folder(path, settings, columns)
    if settings.data.startswith((".", "/", "~")) or settings.data.count("/") > 1:
        raise HeadcountError(f"there is no folder or file {settings.data} with sentence pairs")
    return _read_hub(settings, config)


def _read_folder(
    folder: Path, settings: DataSettings, columns: tuple[str, ...]
) -> dict[str, Pairs]:
    names = settings.evaluate or tuple(
        name for name in VALIDATION if _files(folder, name, settings)
    )[:1]  # fmt: skip
    sets = {"train": _read(folder, settings.train or "train", settings, columns)}
    return sets | {Path(name).name: _read(folder, name, settings, columns) for name in names}


def _files(folder: Path, name: str, settings: DataSettings) -> list[Path]:
    """The two files of an aligned set, or the one table; empty if there is neither."""
    sides = [find_text(folder, f"{name}.{end}") for end in (settings.source, settings.target)]
    found = [side for side in sides if side]
    if len(found) == 2:
        return found
    table = find_text(folder, f"{name}.tsv") or find_text(folder, name)
    if table:
        return [table]
    if found:
        other = settings.target if sides[0] else settings.source
        raise HeadcountError(
            f"{found[0]} has no partner: there is no {name}.{other} or {name}.{other}.gz beside it"
        )
    return []


def _read(
    folder: Path, name: str, settings: DataSettings, columns: tuple[str, ...]
) -> Pairs:  # fmt: skip
    files = _files(folder, name, settings)
    if not files:
        present = sorted(p.name for p in folder.iterdir() if not p.name.startswith("."))
        raise HeadcountError(
            f"{folder} has neither {name}.{settings.source} with {name}.{settings.target} nor "
            f"{name}.tsv (each may end in .gz); it has {', '.join(present[:8]) or 'nothing'}"
        )
    if len(files) == 1:
        return _read_table(files[0], settings, columns)
    sources, targets = (read_lines(file) for file in files)
    if len(sources) != len(targets):
        raise HeadcountError(
            f"{files[0]} has {len(sources)} lines but {files[1]} has {len(targets)}; "
            "line-aligned files have as many lines, fetch both again"
        )
    return Pairs(sources, targets)


def _read_table(path: Path, settings: DataSettings, columns: tuple[str, ...]) -> Pairs:
    rows = [line.split("\t") for line in read_lines(path)]
    sides, header = (str(settings.source), str(settings.target)), rows[0]
    if columns:
        header = list(columns)
        rows = rows[1:] if rows[0] == header else rows
    elif set(sides) <= set(header):
        rows = rows[1:]
    if not set(sides) <= set(header):
        raise HeadcountError(
            f"{path} has no columns {sides[0]!r} and {sides[1]!r}; its first line has "
            f"{[cell[:30] for cell in header[:4]]}; if that is no header, name its columns in "
            f"their order with the option columns, for example columns={sides[1]},{sides[0]}"
        )
    first, second = (header.index(side) for side in sides)
    needed = max(first, second) + 1
    for number, row in enumerate(rows, start=1):
        if len(row) < needed:
            raise HeadcountError(
                f"{path} has {len(row)} columns in row {number} of its data, expected at least "
                f"{needed}, separated by tabs; mend this row"
            )
    if not rows:
        raise HeadcountError(f"{path} has a header but no rows; fetch it again")
    return Pairs([row[first] for row in rows], [row[second] for row in rows])


def _read_hub(settings: DataSettings, config: str | None) -> dict[str, Pairs]:
    try:
        found = load_dataset(settings.data, config)
    except Exception as error:  # whatever goes wrong on the way to the hub
        reason = str(error).strip().splitlines()[0] if str(error).strip() else repr(error)
        raise HeadcountError(f"cannot load the data set {settings.data}: {reason}") from error
    if not isinstance(found, DatasetDict):
        raise HeadcountError(f"the data set {settings.data} has no train and validation parts")
    return pairs_of(found, settings)


def pairs_of(found: Mapping[str, Any], settings: DataSettings) -> dict[str, Pairs]:
    """The parts of a data set that the settings name, `train` first."""
    train = settings.train or "train"
    names = settings.evaluate or tuple(n for n in ("validation", *VALIDATION) if n in found)[:1]
    for name in (train, *names):
        if name not in found:
            raise HeadcountError(
                f"the data set {settings.data} has no part {name}; it has {', '.join(found)}"
            )
    sets = {"train": _columns_of(found[train], settings)}
    return sets | {name: _columns_of(found[name], settings) for name in names}


def _columns_of(part: Any, settings: DataSettings) -> Pairs:
    source, target = str(settings.source), str(settings.target)
    if "translation" in part.column_names:
        rows = list(part["translation"])
        if rows and source in rows[0] and target in rows[0]:
            return Pairs([row[source] for row in rows], [row[target] for row in rows])
        found = sorted(rows[0]) if rows else "nothing"
    elif {source, target} <= set(part.column_names):
        return Pairs(list(part[source]), list(part[target]))
    else:
        found = part.column_names
    raise HeadcountError(
        f"the data set {settings.data} has {found}, expected {source} and {target}; "
        "give the names found there as source and target"
    )
