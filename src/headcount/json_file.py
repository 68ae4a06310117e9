"""Read files that may be damaged, or be anything at all, and check what JSON holds, entry by entry.

Whatever is wrong with a JSON file is a ValueError with a reason. The caller knows what the file is
for, and makes a sentence of it.
"""

from __future__ import annotations

import json
import math
import reprlib
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headcount.errors import HeadcountError

_TOO_LARGE = {int: 2**63, float: 2**1023}  # for numbers of a computer
_SAID = {
    dict: "names with values",
    list: "a list",
    str: "a text",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
}


def read_bytes(path: Path) -> bytes:
    """The content of a file.

    A pipe may never end and a device such as /dev/zero never does, so only files are read.

    Raises:
        HeadcountError: there is no such file, it is something else, or it may not be read.
    """
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise HeadcountError(f"{path} cannot be read: it is a folder; give a file")
        if not stat.S_ISREG(mode):
            raise HeadcountError(
                f"{path} cannot be read: it is a pipe or a device; write its content into a file, "
                "and give that"
            )
        return path.read_bytes()
    except FileNotFoundError as error:
        raise HeadcountError(f"there is no file {path}; check the path") from error
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        reason = getattr(error, "strerror", None) or error
        raise HeadcountError(
            f"{path} cannot be read: {reason}; check the path and the rights of the file"
        ) from error


def read_json(path: Path) -> Any:
    """The content of a JSON file.

    Raises:
        ValueError: the file cannot be read, or is not valid JSON; see `parse_json`.
    """
    try:
        return parse_json(read_bytes(path).decode("utf-8"))
    except HeadcountError as error:
        raise ValueError(str(error).partition(";")[0]) from error


def parse_json(text: str) -> Any:
    r"""The content of a JSON text.

    Raises:
        ValueError: it is not valid JSON, too deep to be anything of ours, or has half a character
            such as "\ud800", which no file can hold.
    """
    try:
        content = json.loads(text)
        if "\\ud" in text or "\\uD" in text:  # most texts have none, and need no further look
            json.dumps(content, ensure_ascii=False).encode("utf-8")
    except RecursionError as error:
        raise ValueError("its brackets are nested too deeply") from error
    except UnicodeEncodeError as error:
        half = str(error.object)[error.start]
        raise ValueError(f"a text has \\u{ord(half):04x}, which is half a character") from error
    return content


def checked(value: Any, kind: type, what: str) -> Any:
    """The value, if it is of the kind that is expected; a whole number is a number too.

    Args:
        value: the value, as JSON gives it.
        kind: `dict`, `list`, `str`, `bool`, `int` or `float`.
        what: what it is, for the reason.

    Raises:
        ValueError: it is something else, or a number that is too large to calculate with.
    """
    # Exact types: Python takes true for 1.
    fits = type(value) is kind or (kind is float and type(value) is int)
    if fits and not (type(value) is int and abs(value) >= _TOO_LARGE[kind]):
        return float(value) if kind is float else value
    raise ValueError(f"{what} is {reprlib.repr(value)}, expected {_SAID[kind]}")


def entry(data: Mapping[str, Any], name: str, kind: type) -> Any:
    """One entry of an object of a JSON file, of the kind that is expected; see `checked`.

    Raises:
        ValueError: there is no such entry, or it is something else.
    """
    if name not in data:
        raise ValueError(f"it has no {name!r}")
    return checked(data[name], kind, repr(name))


def finite(data: Mapping[str, Any], name: str) -> float:
    """One entry that is a number, and neither NaN nor infinite; see `entry`."""
    value: float = entry(data, name, float)
    if not math.isfinite(value):
        raise ValueError(f"{name!r} is {value}, expected a finite number")
    return value
