"""The files of a report: they are written aside and put in place together, over our own alone.

A list beside the page, `.headcount-report.json`, has the digest of every file that a report wrote.
What is not in it, or was changed since, belongs to somebody else and is never written over.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from headcount.atomic import give_name, write_text
from headcount.errors import HeadcountError
from headcount.report.page.page import FILE as PAGE

LIST = ".headcount-report.json"
_FORMAT = "headcount report 1"
_FORGOTTEN = 3600.0  # seconds after which scratch belongs to a report that was killed
_Digests = dict[str, list[str]]  # by path inside the folder


@contextmanager
def written_aside(folder: Path) -> Iterator[Path]:
    """A folder to fill, inside the report's own; what is left in it at the end is removed."""
    refuse_foreign(folder, [PAGE])  # the one name that is known before the work begins
    folder.mkdir(parents=True, exist_ok=True)
    scratch = folder / f".{PAGE}.{secrets.token_hex(8)}.tmp"
    scratch.mkdir()
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def put_in_place(scratch: Path, folder: Path) -> None:
    """Move every file to its place in the report's folder, or none if one would be in the way.

    Args:
        scratch: the folder with the new files, inside the report's folder.
        folder: the report's folder.
    """
    names = sorted(
        path.relative_to(scratch).as_posix() for path in scratch.rglob("*") if path.is_file()
    )
    refuse_foreign(folder, names)
    before = _read_list(folder)
    now = {name: [_digest(scratch / name)] for name in names}
    # A kill while the files are moved leaves old and new ones, and both are ours.
    both = {name: [*before.get(name, []), *now[name]] for name in names}
    _write_list(folder, before | both)
    for name in names:
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        give_name(scratch / name, place)
    _write_list(folder, before | now)
    _sweep(folder, [*before, *names, LIST])


def refuse_foreign(folder: Path, names: Sequence[str]) -> None:
    """Refuse to write where something is that no report wrote.

    Args:
        folder: the report's folder, which need not exist.
        names: paths of the files to write, inside the folder.
    """
    if os.path.lexists(folder) and not folder.is_dir():
        raise HeadcountError(f"{folder} is not a folder; give another one as --output")
    known = _read_list(folder)
    parts = {str(parent) for name in names for parent in Path(name).parents} - {"."}
    for name in sorted(parts):
        path = folder / name
        if path.is_symlink() or (path.exists() and not path.is_dir()):
            raise _foreign(path)
    for name in names:
        path = folder / name
        if not os.path.lexists(path):
            continue
        if path.is_symlink() or not path.is_file() or _digest(path) not in known.get(name, ()):
            raise _foreign(path)


def _foreign(path: Path) -> HeadcountError:
    return HeadcountError(
        f"{path} is in the way: headcount report did not write it, or it was changed since; move "
        "it or delete it, or give another folder as --output"
    )


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _read_list(folder: Path) -> _Digests:
    """The digests of what reports wrote here; empty if there was none yet."""
    path = folder / LIST
    if not os.path.lexists(path):
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if path.is_symlink() or content["format"] != _FORMAT:
            raise ValueError
        return {str(name): [str(one) for one in of] for name, of in content["files"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise HeadcountError(
            f"{path} is damaged, so headcount cannot tell which files of {folder} are its own; "
            "delete the folder, or give another one as --output"
        ) from error


def _write_list(folder: Path, files: _Digests) -> None:
    content = {"format": _FORMAT, "files": dict(sorted(files.items()))}
    write_text(folder / LIST, json.dumps(content, indent=1) + "\n")


def _sweep(folder: Path, names: Iterable[str]) -> None:
    """Remove scratch of these files that a kill left: `.NAME.RANDOM.tmp`, untouched for long."""
    by_folder: dict[Path, set[str]] = {}
    for name in names:
        place = folder / name
        by_folder.setdefault(place.parent, set()).add(place.name)
    for place, own in by_folder.items():
        for path in place.iterdir() if place.is_dir() else ():
            found = re.fullmatch(r"\.(.+)\.[0-9a-f]{16}\.tmp", path.name)
            if found and found[1] in own:
                with suppress(OSError):  # it may just get its name, and the report is written
                    _remove_forgotten(path)


def _remove_forgotten(path: Path) -> None:
    if time.time() - _last_touched(path) < _FORGOTTEN:
        return
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink()


def _last_touched(path: Path) -> float:
    """When anything in it was written; a report may draw figures for hours."""
    return max(each.lstat().st_mtime for each in (path, *path.rglob("*")))
