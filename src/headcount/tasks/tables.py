"""Read a table from a file, plain or gzipped.

A table is CSV, TSV, JSON lines or Parquet. Nothing is guessed about values, unlike in readers of
data frames. The words "null" and "NA" stay words. A row with a missing field is an error that names
its line.
"""

from __future__ import annotations

import csv
import io
import math
import reprlib
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headcount.errors import HeadcountError
from headcount.json_file import parse_json
from headcount.tasks.files import decoded, empty_file, file_ending, unpacked

Row = list[Any]
Columns = dict[str, list[Any]]
LINES = ".lines"  # a text in every line; files of this kind usually end in .txt
LINE = "text"  # their only column


def read_table(
    path: Path,
    *,
    kind: str | None = None,
    names: Sequence[str] = (),
    skip_broken: bool = False,
) -> Table:
    """Read a table from a file.

    Args:
        path: the file; its ending gives the format, and `.gz` may follow.
        kind: the ending to read it as, if its own is misleading: `.tsv` for MRPC's `.txt`.
        names: names of the columns, for a CSV or TSV file without a header. A first line that has
            one of these names is still read as a header.
        skip_broken: leave out and count rows with too few or too many fields, instead of raising
            an error.

    Raises:
        HeadcountError: the file is missing, empty or damaged; the message names the line.
    """
    ending = kind or file_ending(path)
    if ending not in (*READERS, LINES):
        raise HeadcountError(
            f"{path} is not a table that can be read: its name ends in {path.suffix or 'nothing'}; "
            f"give a file that ends in {', '.join(READERS)}, or in one of these and .gz"
        )
    data = unpacked(path)
    if not data:
        raise empty_file(path)
    read = _read_lines if ending == LINES else READERS[ending]
    table = read(path, data, names, skip_broken)
    if not len(table):
        raise HeadcountError(
            f"{path} has no rows, only the columns {named(table.columns) or 'of nothing'}; "
            "give a file with at least one row"
        )
    return table


@dataclass(frozen=True)
class Table:
    """Columns of equal length.

    Attributes:
        source: where they come from, for messages.
        columns: the values by column name.
        broken: how many rows were left out because they had too few or too many fields.
    """

    source: str
    columns: Columns
    broken: int = 0

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), []))

    def column(self, name: str) -> list[Any]:
        """The values of one column."""
        if name not in self.columns:
            raise HeadcountError(
                f"{self.source} has no column {name!r}, it has {named(self.columns)}; "
                "name one of these"
            )
        return self.columns[name]

    def texts(self, name: str, missing: str | None = None) -> list[str]:
        """The values of one column as text.

        Args:
            name: the column.
            missing: the text for a row that has none; None refuses such a row.

        Raises:
            HeadcountError: there is no such column, or a row has no text there.
        """
        return as_texts(self.column(name), name, self.source, missing)

    def joined(self, other: Table) -> Table:
        """This table and below it the rows of another one, the next shard of the same data."""
        if set(other.columns) != set(self.columns):
            raise HeadcountError(
                f"{other.source} has the columns {named(other.columns)}, but {self.source} has "
                f"{named(self.columns)}; the parts of one table must have the same columns"
            )
        columns = {name: values + other.columns[name] for name, values in self.columns.items()}
        return Table(self.source, columns, self.broken + other.broken)


def as_texts(
    values: Sequence[Any], name: str, source: str, missing: str | None = None
) -> list[str]:
    """The values of a column as text; for the arguments see `Table.texts`."""
    return [_as_text(value, row, name, source, missing) for row, value in enumerate(values)]


def _as_text(value: Any, row: int, name: str, source: str, missing: str | None) -> str:
    if isinstance(value, str):
        return value
    # A data frame writes NaN where a value is missing.
    absent = value is None or (isinstance(value, float) and math.isnan(value))
    if absent and missing is not None:
        return missing
    if absent or isinstance(value, list | dict | bytes) or value in (math.inf, -math.inf):
        raise HeadcountError(
            f"row {row + 1} of {source} has {reprlib.repr(value)} in the column {name!r} where a "
            "text is expected; mend the row, or name another column"
        )
    return str(value)


def named(names: Iterable[str]) -> str:
    """Names of columns for a message; the first line of some files is no header, but a novel."""
    names = [name if len(name) <= 40 else f"{name[:40]}…" for name in names]
    return ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")


def _read_csv(path: Path, data: bytes, names: Sequence[str], skip_broken: bool) -> Table:
    csv.field_size_limit(min(sys.maxsize, 2**31 - 1))  # the default of 131,072 is too short
    reader = csv.reader(io.StringIO(decoded(path, data), newline=""), strict=True)
    rows, lines, next_line = [], [], 1
    try:
        for row in reader:
            if row:  # an empty line is no row
                rows.append(row)
                lines.append(next_line)
            next_line = reader.line_num + 1
    except csv.Error as error:
        raise HeadcountError(
            f"{path} is not valid CSV: {error}, in the row that begins in line {next_line}; mend "
            "its quotes"
        ) from error
    return _rectangle(path, rows, lines, names, skip_broken)


def _read_tsv(path: Path, data: bytes, names: Sequence[str], skip_broken: bool) -> Table:
    """Lines and tabs without quoting, as in GLUE: a text may contain any other character."""
    text = decoded(path, data).rstrip("\r\n")
    rows = [line.removesuffix("\r").split("\t") for line in text.split("\n")]
    return _rectangle(path, rows, range(1, len(rows) + 1), names, skip_broken)


def _rectangle(
    path: Path, rows: list[Row], lines: Sequence[int], names: Sequence[str], skip_broken: bool
) -> Table:
    header = list(names)
    if not names or set(names) & set(rows[0]):
        header, rows, lines = rows[0], rows[1:], lines[1:]
    twice = {name for name in header if header.count(name) > 1}
    if twice:
        raise HeadcountError(
            f"{path} has two columns called {min(twice)!r} in line 1; rename one of them"
        )
    whole = [row for row in rows if len(row) == len(header)]
    if len(whole) < len(rows) and not skip_broken:
        row, line = next((r, n) for r, n in zip(rows, lines, strict=True) if len(r) != len(header))
        raise HeadcountError(
            f"{path} is ragged: line {line} has {len(row)} fields, but there are {len(header)} "
            f"columns ({named(header)}); mend the line or leave it out"
        )
    values = [list(column) for column in zip(*whole, strict=True)] or [[] for _ in header]
    return Table(str(path), dict(zip(header, values, strict=True)), len(rows) - len(whole))


def _read_lines(path: Path, data: bytes, names: Sequence[str], skip_broken: bool) -> Table:
    lines = (line.strip() for line in decoded(path, data).split("\n"))
    return Table(str(path), {LINE: [line for line in lines if line]})


def _read_jsonl(path: Path, data: bytes, names: Sequence[str], skip_broken: bool) -> Table:
    columns: Columns = {}
    broken = 0
    for number, line in enumerate(decoded(path, data).split("\n"), start=1):
        if not line.strip():
            continue
        row = _json_object(path, number, line)
        columns = columns or {name: [] for name in row}
        if row.keys() != columns.keys():
            if not skip_broken:
                raise HeadcountError(
                    f"{path} is ragged: line {number} has the keys {named(row)}, but the first "
                    f"has {named(columns)}; mend the line or leave it out"
                )
            broken += 1
            continue
        for name, value in row.items():
            columns[name].append(value)
    return Table(str(path), columns, broken)


def _json_object(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        row = parse_json(line)
    except ValueError as error:
        raise HeadcountError(
            f"line {number} of {path} is not valid JSON: {error}; a file of JSON lines has one "
            "object in every line"
        ) from error
    if not isinstance(row, dict):
        raise HeadcountError(
            f"line {number} of {path} is a JSON {type(row).__name__}; a file of JSON lines has one "
            'object in every line, such as {"text": "…", "label": "…"}'
        )
    return row


def _read_parquet(path: Path, data: bytes, names: Sequence[str], skip_broken: bool) -> Table:
    import pyarrow
    import pyarrow.parquet
    from datasets import Dataset

    try:
        table = pyarrow.parquet.read_table(pyarrow.BufferReader(data))
        table.validate(full=True)  # texts in UTF-8, among other things
        return table_of(Dataset(table), str(path))
    # Damage in the file is an error of pyarrow; in what `datasets` noted there, of any type.
    except Exception as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise HeadcountError(
            f"{path} is not a whole Parquet file: {reason}; copy or download it again"
        ) from error


def table_of(dataset: Any, source: str) -> Table:
    """The table of a `datasets.Dataset`, with the names of class labels instead of numbers.

    The hub's number for "no label" is -1. It becomes "-", as in the files of SNLI and MNLI.
    """
    from datasets import ClassLabel

    columns: Columns = {}
    for name, feature in dataset.features.items():
        values = list(dataset[name])
        if isinstance(feature, ClassLabel):
            names = dict(enumerate(feature.names)) | {-1: "-"}
            values = [names.get(value, value) for value in values]
        columns[name] = values
    return Table(source, columns)


READERS: dict[str, Callable[[Path, bytes, Sequence[str], bool], Table]] = {
    ".csv": _read_csv,
    ".tsv": _read_tsv,
    ".jsonl": _read_jsonl,
    ".parquet": _read_parquet,
}
