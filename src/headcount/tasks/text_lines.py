"""Text files, plain or gzip, as lines; whatever is wrong with one is said with its name."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

from headcount.errors import HeadcountError

_GZIP = b"\x1f\x8b"


def read_text(path: Path) -> str:
    """The text of a file in UTF-8, which may be compressed by gzip whatever its name is.

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


def read_lines(path: Path) -> list[str]:
    """The lines of a text file without what ends them.

    Only a newline ends a line: other separators of Unicode occur inside sentences, and splitting
    there would shift a file against the one it is aligned with.

    Raises:
        HeadcountError: see `read_text`; or there are no lines.
    """
    text = read_text(path)
    if not text.strip():
        raise HeadcountError(f"{path} is empty, expected a sentence a line; fetch it again")
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


def find_text(folder: Path, name: str) -> Path | None:
    """The file of this name, or of this name with `.gz`; a path of its own stands as it is."""
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            return path
    return None
