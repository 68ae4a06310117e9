"""Read a table or the lines of a text from a file, plain or gzipped.

A table is CSV, TSV, JSON lines or Parquet. Nothing is guessed about values, unlike in readers of
data frames. The words "null" and "NA" stay words. A row with a missing field is an error that names
its line.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import sys
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headcount.errors import HeadcountError

Row = list[Any]
Columns = dict[str, list[Any]]
_GZIP = b"\x1f\x8b"  # the first bytes of a gzip file


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
    if ending not in READERS:
        raise HeadcountError(
            f"{path} is not a table that can be read: its name ends in {path.suffix or 'nothing'}; "
            f"give a file that ends in {', '.join(READERS)}, or in one of these and .gz"
        )
    data = _read_bytes(path)
    if not data.strip():
        raise HeadcountError(f"{path} is empty; give a file with at least one row")
    table = READERS[ending](path, data, names, skip_broken)
    if not len(table):
        raise HeadcountError(
            f"{path} has no rows, only the columns {', '.join(table.columns) or 'of nothing'}; "
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
                f"{self.source} has no column {name!r}, it has {', '.join(self.columns)}; "
                "name one of these"
            )
        return self.columns[name]

    def joined(self, other: Table) -> Table:
        """This table and below it the rows of another one, the next shard of the same data."""
        if set(other.columns) != set(self.columns):
            raise HeadcountError(
                f"{other.source} has the columns {', '.join(other.columns)}, but {self.source} has "
                f"{', '.join(self.columns)}; the parts of one table must have the same columns"
            )
        columns = {name: values + other.columns[name] for name, values in self.columns.items()}
        return Table(self.source, columns, self.broken + other.broken)


def file_ending(path: Path) -> str:
    """The ending that gives the format, without `.gz`."""
    return (path.with_suffix("") if path.suffix == ".gz" else path).suffix


def _read_bytes(path: Path) -> bytes:
    try:
        data = path.read_bytes()
        return gzip.decompress(data) if path.suffix == ".gz" and data else data
    except FileNotFoundError as error:
        raise HeadcountError(f"there is no file {path}; check the path") from error
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise HeadcountError(
            f"{path} is not a whole gzip file: {error}; copy or download it again"
        ) from error
    except OSError as error:
        raise HeadcountError(f"{path} cannot be read: {error.strerror or error}") from error


def _read_csv(path: Path, data: bytes, names: Sequence[str], skip_broken: bool) -> Table:
    csv.field_size_limit(min(sys.maxsize, 2**31 - 1))  # the default of 131,072 is too short
    reader = csv.reader(io.StringIO(_text(path, data), newline=""), strict=True)
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
    text = _text(path, data).rstrip("\r\n")
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
            f"columns ({', '.join(header)}); mend the line or leave it out"
        )
    values = [list(column) for column in zip(*whole, strict=True)] or [[] for _ in header]
    return Table(str(path), dict(zip(header, values, strict=True)), len(rows) - len(whole))


def _text(path: Path, data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise HeadcountError(
            f"{path} is not UTF-8: line {line} has the byte 0x{data[error.start]:02x} where no "
            "character can have it; convert the file to UTF-8"
        ) from error


def _read_jsonl(path: Path, data: bytes, names: Sequence[str], skip_broken: bool) -> Table:
    columns: Columns = {}
    broken = 0
    for number, line in enumerate(_text(path, data).split("\n"), start=1):
        if not line.strip():
            continue
        row = _json_object(path, number, line)
        columns = columns or {name: [] for name in row}
        if row.keys() != columns.keys():
            if not skip_broken:
                raise HeadcountError(
                    f"{path} is ragged: line {number} has the keys {', '.join(row)}, but the first "
                    f"has {', '.join(columns)}; mend the line or leave it out"
                )
            broken += 1
            continue
        for name, value in row.items():
            columns[name].append(value)
    return Table(str(path), columns, broken)


def _json_object(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
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
    except (pyarrow.ArrowException, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        raise HeadcountError(
            f"{path} is not a whole Parquet file: {reason}; copy or download it again"
        ) from error
    return table_of(Dataset(table), str(path))


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


def find_text(folder: Path, name: str) -> Path | None:
    """The file of this name, or of this name with `.gz`; `name` may also be a whole path."""
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            return path
    return None


def read_lines(path: Path) -> list[str]:
    """The lines of a text file, without their ends.

    Only a newline ends a line. Other separators of Unicode occur inside sentences; splitting there
    would shift a file against the one that it is aligned with.

    Raises:
        HeadcountError: the file cannot be read (see `read_text`), or has no lines.
    """
    text = read_text(path)
    if not text.strip():
        raise HeadcountError(f"{path} is empty, expected a sentence a line; fetch it again")
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


def read_text(path: Path) -> str:
    """The text of a UTF-8 file, which may be compressed with gzip under any name.

    Raises:
        HeadcountError: the file cannot be read, is damaged, or is not UTF-8.
    """
    try:
        data = path.read_bytes()
        if data.startswith(_GZIP):
            data = gzip.decompress(data)
        elif path.suffix == ".gz":
            raise gzip.BadGzipFile("it does not begin as such a file does")
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise HeadcountError(
            f"{path} is not UTF-8 text: byte {error.start} is {error.object[error.start]:#04x}; "
            "convert it, for example with iconv"
        ) from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise HeadcountError(
            f"{path} is not a whole gzip file: {error}; fetch or compress it again"
        ) from error
    except OSError as error:
        raise HeadcountError(f"cannot read {path}: {error.strerror or error}") from error
