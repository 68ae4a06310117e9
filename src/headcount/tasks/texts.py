"""Read the texts of language modelling: one to train on, and those to evaluate on."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from headcount.errors import HeadcountError
from headcount.tasks import hub
from headcount.tasks.base import DataSettings
from headcount.tasks.files import (
    file_ending,
    find_data,
    find_file,
    find_text,
    list_folder,
    read_text,
)
from headcount.tasks.tables import READERS, Table, read_table

# Between rows, as transformers' page on perplexity and the scripts of GPTQ and Wanda have it.
JOIN = "\n\n"
HELD_OUT = "held-out"  # the evaluation set of a text that has none
WHOLE = "text"  # the evaluation set of a text that is only evaluated
_TEST = ("test",)
_VALIDATION = ("validation", "valid", "val", "dev", "eval")
_SHARE = 10  # one part in this many is held out
_LEAST = 12_000  # characters that are held out at least: about a window of 2,048 tokens


def read_texts(
    settings: DataSettings, config: str | None = None, join: str = JOIN
) -> dict[str, str]:
    """The training text, called `train`, if there is one, and the text of every evaluation set.

    A file is plain text, whatever its ending, except CSV, TSV, JSON lines and Parquet: of these,
    the column `text` is read, or the one that `settings.text` names. All may be gzipped. In a
    folder, files are found by their names; if none has a usual name, all `.txt` files and tables
    are the training text.

    Without `data`, `train` and `evaluate` are paths, and nothing else is read.

    If only evaluation is asked for, the test text is evaluated, else the validation text, else all
    there is, and no training text is read. Otherwise the validation text comes first, because a
    choice may be made on it. Where there is no evaluation text, the last tenth of the training text
    is held out: 12,000 characters at least, and half of the text at most.

    Args:
        settings: which data.
        config: the configuration of a data set on the hub; None for its only one.
        join: what is put between the rows of a table.

    Raises:
        HeadcountError: a text is missing, empty or damaged.
    """
    if not settings.data:
        texts = _of_paths(settings, join)
    elif (path := find_data(settings.data, (".txt", *READERS))) is None:
        texts = _of_parts(hub.load(settings.data, config), settings, join)
    elif (path / "dataset_dict.json").is_file():
        texts = _of_parts(hub.load_saved(path), settings, join)
    else:
        texts = _of_files(path, settings, join)
    if settings.evaluate_only:
        train = texts.pop("train", "")
        return texts or {WHOLE: train}
    if set(texts) == {"train"}:
        texts["train"], texts[HELD_OUT] = hold_out(texts["train"])
    return texts


def _evaluated(settings: DataSettings) -> tuple[str, ...]:
    """The usual names of texts to evaluate on, the best first."""
    return (*_TEST, *_VALIDATION) if settings.evaluate_only else (*_VALIDATION, *_TEST)


def _of_paths(settings: DataSettings, join: str) -> dict[str, str]:
    """The texts that are given by their paths alone."""
    texts = {}
    if settings.train and not (settings.evaluate and settings.evaluate_only):
        texts["train"] = _read(find_file(settings.train), settings, join)
    for name in settings.evaluate:
        texts[_short(name)] = _read(find_file(name), settings, join)
    return texts


def _of_files(path: Path, settings: DataSettings, join: str) -> dict[str, str]:
    folder = path if path.is_dir() else path.parent
    texts = {}
    if path.is_file() and settings.evaluate_only and not settings.evaluate:
        return {_short(path.name): _read(path, settings, join)}
    train = settings.train or ("" if path.is_dir() else path.name)
    evaluation = {name: _named(folder, name) for name in settings.evaluate}
    if not evaluation and path.is_dir():
        for word in _evaluated(settings):
            if not evaluation and (usual := _by_name(folder, word)) is not None:
                evaluation = {"test" if word in _TEST else "validation": usual}
    known = bool(evaluation) and settings.evaluate_only
    if not known:
        found = _named(folder, train) if train else _by_name(folder, "train")
        if found is not None:
            texts["train"] = _read(found, settings, join)
        elif not evaluation:
            texts["train"] = _all_of(folder, settings, join)
    for name, file in evaluation.items():
        texts[_short(name)] = _read(file, settings, join)
    return texts


def _all_of(folder: Path, settings: DataSettings, join: str) -> str:
    """The texts of a folder whose files have none of the usual names, one after another."""
    readable = (".txt", *READERS)
    files = [p for p in list_folder(folder) if p.is_file() and file_ending(p) in readable]
    if not files:
        raise _missing(folder, "train")
    return join.join(_read(file, settings, join) for file in files)


def _read(path: Path, settings: DataSettings, join: str) -> str:
    if file_ending(path) not in READERS:
        return read_text(path)
    return _rows(read_table(path), settings, join)


def _rows(table: Table, settings: DataSettings, join: str) -> str:
    text = join.join(table.texts(settings.text[0] if settings.text else "text", missing=""))
    if not text.strip():
        raise HeadcountError(f"{table.source} has only empty rows; give a file with text")
    return text


def _named(folder: Path, name: str) -> Path:
    path = find_text(folder, name) or find_text(folder, f"{name}.txt")
    if path is None:
        raise _missing(folder, name)
    return path


def _missing(folder: Path, name: str) -> HeadcountError:
    present = [p.name for p in list_folder(folder) if p.is_file()]
    return HeadcountError(
        f"{folder} has no text {name}.txt or {name}.txt.gz; it has "
        f"{', '.join(present[:8]) or 'no files'}: name files as train and evaluate"
    )


def _by_name(folder: Path, word: str) -> Path | None:
    """The only file with this word in its name, such as `wiki.train.tokens`."""
    pattern = re.compile(rf"(^|[._-]){word}([._-]|$)")
    found = [p for p in list_folder(folder) if p.is_file() and pattern.search(p.name)]
    if len(found) > 1:
        raise HeadcountError(
            f"{folder} has several files for {word}: {found[0].name}, {found[1].name}; "
            "name files as train and evaluate"
        )
    return found[0] if found else None


def _of_parts(
    parts: Mapping[str, Callable[[], Table]], settings: DataSettings, join: str
) -> dict[str, str]:
    """The texts of a data set with named parts; one without a training part is only evaluated."""
    usual = tuple(name for name in _evaluated(settings) if name in parts)[:1]
    evaluation = settings.evaluate or usual
    wanted = {name: name for name in evaluation}
    train = settings.train or "train"
    if not evaluation or not settings.evaluate_only:
        wanted |= {"train": train} if train in parts or settings.train or not evaluation else {}
    for part in wanted.values():
        if part not in parts:
            raise HeadcountError(
                f"the data set {settings.data} has no part {part}; it has {', '.join(parts)}"
            )
    names = sorted(wanted, key=lambda name: name != "train")
    return {name: _rows(parts[wanted[name]](), settings, join) for name in names}


def hold_out(text: str) -> tuple[str, str]:
    """A text without its last part, and that part; it is cut where a line or a word ends."""
    size = min(max(len(text) // _SHARE, _LEAST), len(text) // 2)
    start = len(text) - size
    for sign in ("\n", " "):
        end = text.rfind(sign, 0, start)
        if end > start // 2:
            start = end + 1
            break
    first, last = text[:start], text[start:]
    if not first.strip() or not last.strip():
        raise HeadcountError(
            f"the training text has {len(text)} characters, too few to hold some out to evaluate "
            "on; give more text, or name a file in evaluate"
        )
    return first, last


def held_out_line(train: str, held_out: str) -> str:
    """The sentence that says how much of a text was held out."""
    return (
        f"there is no text to evaluate on: the last {len(held_out):,} of "
        f"{len(train) + len(held_out):,} characters of the training text are held out for that"
    )


def _short(name: str) -> str:
    return Path(name).name.removesuffix(".gz").removesuffix(".txt")
