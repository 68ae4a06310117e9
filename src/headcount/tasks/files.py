"""Find files and folders, and read the text of a file, plain or gzipped."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterable
from pathlib import Path

from headcount.errors import HeadcountError
from headcount.json_file import read_bytes

_GZIP = b"\x1f\x8b"  # the first bytes of a gzip file


def find_data(data: str, endings: Iterable[str]) -> Path | None:
    """The file or folder that `data` names; None for the name of a data set on the hub.

    Args:
        data: as a user gives it.
        endings: endings of files of data, which no name on the hub has.

    Raises:
        HeadcountError: it is a path where nothing is, or something other than a file or folder.
    """
    path = Path(os.path.expanduser(data))
    if os.path.isfile(path) or os.path.isdir(path):
        return path
    if os.path.lexists(path):
        raise HeadcountError(
            f"{data} is neither a file nor a folder, but a pipe, a device or a link to nothing; "
            "give a file or a folder"
        )
    if data.startswith((".", "/", "~")) or file_ending(path) in endings:
        raise HeadcountError(f"there is no file or folder {data}; check the path")
    return None


def find_file(path: str) -> Path:
    """The file at a path, relative to where the user is.

    Raises:
        HeadcountError: no file is there.
    """
    found = find_text(Path(), os.path.expanduser(path))
    if found is None:
        raise HeadcountError(f"there is no file {path}; check the path")
    return found


def list_folder(folder: Path) -> list[Path]:
    """What a folder holds, sorted.

    Raises:
        HeadcountError: it may not be read.
    """
    try:
        return sorted(folder.iterdir())
    except OSError as error:
        raise HeadcountError(
            f"the folder {folder} cannot be read: {error.strerror or error}; check its rights"
        ) from error


def file_ending(path: Path) -> str:
    """The ending that gives the format, without `.gz`."""
    return (path.with_suffix("") if path.suffix == ".gz" else path).suffix


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
        HeadcountError: the file cannot be read, or is empty; see `read_text`.
    """
    lines = read_text(path).split("\n")
    if not lines[-1]:
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


def read_text(path: Path) -> str:
    """The text of a UTF-8 file, which may be compressed with gzip under any name.

    Raises:
        HeadcountError: the file cannot be read, is damaged, is not UTF-8, or is empty.
    """
    return decoded(path, unpacked(path))


def unpacked(path: Path) -> bytes:
    """The content of a file, which may be compressed with gzip under any name."""
    data = read_bytes(path)
    try:
        if data.startswith(_GZIP):
            return gzip.decompress(data)
        if data and path.suffix == ".gz":
            raise gzip.BadGzipFile("it does not begin as such a file does")
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise HeadcountError(
            f"{path} is not a whole gzip file: {error}; copy or download it again"
        ) from error
    return data


def decoded(path: Path, data: bytes) -> str:
    """The text that the bytes of a file are in UTF-8.

    Args:
        path: the file, for messages.
        data: its content, unpacked.

    Raises:
        HeadcountError: it is not UTF-8, or has nothing but spaces.
    """
    try:
        text = data.decode("utf-8-sig")
        # UTF-16 and a disk's lost blocks would pass for UTF-8, but no text has a NUL.
        wrong = data.find(b"\0")
    except UnicodeDecodeError as error:
        wrong = error.start
    if wrong >= 0:
        line = data.count(b"\n", 0, wrong) + 1
        raise HeadcountError(
            f"{path} is not UTF-8: line {line} has the byte 0x{data[wrong]:02x} where no "
            "character can have it; convert the file to UTF-8"
        )
    if not text.strip():
        raise empty_file(path)
    return text


def empty_file(path: Path) -> HeadcountError:
    """The error for a file with nothing in it."""
    return HeadcountError(f"{path} is empty; give a file with at least one line")
