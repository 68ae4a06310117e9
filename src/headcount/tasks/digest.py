"""A short digest of data, to recognise it later: the same in every process, on every computer."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path

import numpy as np

_BYTES = 20  # of a digest; it has twice as many characters
_LARGE = 2**16  # bytes; of a larger image only both ends are read


def digest_of(columns: Mapping[str, Sequence[str | bytes]]) -> str:
    """A digest of the names and values of columns, in their order.

    Args:
        columns: the values by name. They are hashed as one text beside their lengths, since a call
            for each value would take most of the time.
    """
    digest = hashlib.blake2b(digest_size=_BYTES)
    for name, values in columns.items():
        data = [_bytes(value) for value in chain([name], values)]
        lengths = np.fromiter(map(len, data), dtype="<i8", count=len(data))
        # "ab", "c" is not "a", "bc", and two columns are not one.
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(lengths.tobytes())
        digest.update(b"".join(data))
    return digest.hexdigest()


def file_digest(path: Path) -> str:
    """A digest of all that a file holds."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=_BYTES))
    return digest.hexdigest()


def file_ends(path: Path) -> bytes:
    """The length of a file, its beginning and its end: all of a small one.

    A set of images may have many gigabytes. An image that was changed has another length, or other
    bytes at its end, since images are compressed.
    """
    with path.open("rb") as file:
        length = file.seek(0, 2)
        file.seek(0)
        begin = file.read(_LARGE)
        file.seek(max(len(begin), length - _LARGE))
        return length.to_bytes(8, "little") + begin + file.read(_LARGE)


def _bytes(value: str | bytes) -> bytes:
    # Half a character can only come from Python; a digest is no place to refuse it.
    return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
