"""`modules.json` of sentence-transformers: the modules of an encoder, and where their files are.

The first is the Transformer. Its files are in the folder itself. Older folders, and some that are
put together by hand, have them in a folder of its own: `0_Transformer`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from headcount.atomic import write_text
from headcount.errors import HeadcountError
from headcount.json_file import checked, entry, read_json

MODULES = "modules.json"


class Listed(NamedTuple):
    """A module of the list.

    Attributes:
        module: the Python module that has its class.
        name: the name of its class.
        path: its folder inside the encoder's; empty for the encoder's own.
    """

    module: str
    name: str
    path: str


def has_modules(folder: Path) -> bool:
    """Whether a folder is one of sentence-transformers."""
    return (folder / MODULES).is_file()


def listed_modules(folder: Path) -> list[Listed]:
    """The modules of a folder of sentence-transformers, in their order.

    Raises:
        HeadcountError: the list is damaged.
    """
    file = folder / MODULES
    try:
        return [_listed(row) for row in checked(read_json(file), list, "its content")]
    except ValueError as error:
        raise HeadcountError(
            f"{file} does not list the modules of an encoder: {error}; restore the file"
        ) from error


def _listed(row: Any) -> Listed:
    row = checked(row, dict, "a module")
    module, _, name = entry(row, "type", str).rpartition(".")
    return Listed(module, name, entry(row, "path", str))


def transformer_path(folder: Path) -> str:
    """The folder inside a folder where its first module is; empty for the folder itself."""
    rows = listed_modules(folder) if has_modules(folder) else []
    return rows[0].path if rows else ""


def say_in_one_folder(folder: Path) -> None:
    """Let the list say that the Transformer is in the folder itself."""
    rows = read_json(folder / MODULES)
    rows[0]["path"] = ""
    write_text(folder / MODULES, json.dumps(rows, indent=2) + "\n")
