"""Write a file or a folder whole or not at all, and never touch what is not ours.

What is being written has a random name beside its place, which no other process has and nobody can
guess: `.NAME.RANDOM.tmp`. `give_name` is the one function that makes it visible. A kill before that
leaves scratch behind, which `sweep` removes.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from reprlib import repr as in_brief

from safetensors import SafetensorError

from headcount.errors import HeadcountError

_LONGEST = 200  # bytes of a run's name, to which `.unfinished` and the like are added
_ALLOWED = 255  # bytes of any name, on most systems


def give_name(scratch: Path, path: Path) -> None:
    """Make what was written visible under its name."""
    os.replace(scratch, path)


def write_atomically(path: str | Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a temporary file beside `path`, then give it its name.

    A link at `path` is replaced, not followed.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = _scratch(path)
    os.close(os.open(scratch, os.O_CREAT | os.O_EXCL | os.O_WRONLY | _NOFOLLOW, 0o666))
    try:
        write(scratch)
        give_name(scratch, path)
    finally:
        scratch.unlink(missing_ok=True)


def write_text(path: str | Path, text: str) -> None:
    """Write a text file, whole or not at all."""
    write_atomically(path, lambda scratch: scratch.write_text(text, encoding="utf-8"))


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A folder to fill, which gets its name only if the block ends without an error."""
    refuse_existing(path, _ALLOWED)
    if not path.absolute().parent.is_dir():
        raise HeadcountError(f"{path} cannot be written: {path.parent} is not a folder")
    scratch = _scratch(path.absolute())
    try:
        scratch.mkdir()
    except OSError as error:
        raise HeadcountError(
            f"{path} cannot be written: {error.strerror or error}; give another folder"
        ) from error
    try:
        yield scratch
        refuse_existing(path, _ALLOWED)
        give_name(scratch, path)
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or error
        raise HeadcountError(f"{path} cannot be written: {reason}; make room for it") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def refuse_existing(path: Path, most: int = _LONGEST) -> None:
    """Refuse to write where something is, or where nothing can be."""
    refuse_bad_output(path, most)
    if os.path.lexists(path):
        raise HeadcountError(f"{path} exists already; give a new folder for the output")


def refuse_bad_output(path: Path, most: int = _LONGEST) -> None:
    """Refuse a path that cannot become a new file or folder, before work is spent on it.

    Whether something is there already is for others to judge.

    Args:
        path: the path.
        most: bytes that its name may have.
    """
    refuse_bad_name(path.name, most)
    try:
        path.lstat()
        if path.is_symlink() and not path.exists():
            raise HeadcountError(
                f"{path} is a link to {path.readlink()}, which is not there; give a new folder"
            )
    except (FileNotFoundError, NotADirectoryError):  # what is above it is for others to judge too
        return
    except (OSError, ValueError) as error:  # a name above it too long, a zero in it, links in rings
        reason = getattr(error, "strerror", None) or error
        raise HeadcountError(
            f"{in_brief(str(path))} cannot be written: {reason}; give another folder"
        ) from error


def refuse_bad_name(name: str, most: int = _LONGEST) -> None:
    """Refuse the name of an output that file systems or our own files cannot hold."""
    try:
        length = len(name.encode("utf-8"))
    except UnicodeEncodeError:
        raise HeadcountError(
            f"the name {in_brief(name)} is not text in UTF-8; give the output another name"
        ) from None
    if length > most:
        raise HeadcountError(
            f"the name {in_brief(name)} has {length} bytes, expected at most {most}; give the "
            "output a shorter one"
        )


def sweep(path: Path, older_than: float = 0.0) -> None:
    """Remove scratch of `path` that a kill left.

    Args:
        path: the file or folder that was to be written.
        older_than: seconds. Where other processes may be writing, an hour spares what is theirs.
    """
    name = re.escape(f".{_short(path.name)}.")
    parent = path.absolute().parent
    for entry in parent.iterdir() if parent.is_dir() else ():
        if not re.fullmatch(rf"{name}[0-9a-f]{{16}}\.tmp", entry.name):
            continue
        if older_than and time.time() - entry.lstat().st_mtime < older_than:
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink(missing_ok=True)


_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)  # Windows has none, and random names need none


def _scratch(path: Path) -> Path:
    return path.with_name(f".{_short(path.name)}.{secrets.token_hex(8)}.tmp")


def _short(name: str) -> str:
    return os.fsencode(name)[:_LONGEST].decode("utf-8", errors="ignore")
