"""Tokenise once: keep prepared data on disk, under a key of everything that it depends on."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset

from headcount.atomic import write_text
from headcount.errors import HeadcountError
from headcount.tasks.base import DataSettings, Processor
from headcount.tasks.digest import digest_of, file_digest

Batch = dict[str, list[Any]]

# Part of every key. Raise it when other things are stored.
LAYOUT = "2"
_CHECKSUM = ".blake2b"  # the ending of the file with the digest of another


def cache_folder(settings: DataSettings) -> Path:
    """The folder for prepared data: as set, or `$HEADCOUNT_CACHE`, or `~/.cache/headcount`."""
    folder = settings.cache or os.environ.get("HEADCOUNT_CACHE") or "~/.cache/headcount"
    return Path(folder).expanduser()


def draw(count: int, limit: int | None, seed: int) -> list[int]:
    """The rows to use, in their order. A larger draw with the same seed contains a smaller one.

    Args:
        count: how many rows there are.
        limit: how many of them to draw; None for all.
        seed: change it to draw other rows.
    """
    if limit is None or limit >= count:
        return list(range(count))
    if limit < 1:
        raise HeadcountError(f"cannot use {limit} of {count} examples; give a limit of at least 1")
    drawn = np.random.default_rng(seed).permutation(count)[:limit]
    return sorted(int(row) for row in drawn)


def prepared(
    columns: Batch,
    tokenise: Callable[[Batch], Batch],
    depends_on: Iterable[str],
    cache: Path,
) -> Dataset:
    """Tokenise columns, or read the result of an earlier run on the same columns.

    Args:
        columns: columns of strings to tokenise.
        tokenise: turns a batch of rows into the columns to keep; must give `input_ids`.
        depends_on: everything else that the result depends on; see `fingerprint`.
        cache: the folder that keeps the result.

    Returns:
        The rows in their order, with a column `length`: the number of tokens.
    """
    key = digest_of({"": [LAYOUT, *depends_on], **columns})
    path = cache / "tokenised" / f"{key}.arrow"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if _is_whole(path):
            return Dataset.from_file(str(path))
        path.unlink(missing_ok=True)

        def with_length(batch: Batch) -> Batch:
            made = tokenise(batch)
            return {**made, "length": [len(ids) for ids in made["input_ids"]]}

        # The file gets its name when it is complete, so a killed run leaves no partial one.
        made = Dataset.from_dict(columns).map(
            with_length,
            batched=True,
            remove_columns=list(columns),
            cache_file_name=str(path),
            new_fingerprint=key,
            desc="Tokenising",
        )
        write_text(path.with_suffix(_CHECKSUM), file_digest(path) + "\n")
        return made
    except OSError as error:
        raise HeadcountError(
            f"prepared data cannot be kept in {cache}: {error.strerror or error}; give another "
            "folder as the cache, or set HEADCOUNT_CACHE"
        ) from error


def _is_whole(path: Path) -> bool:
    """Whether a file is as it was written; a flipped bit would change tokens without a word."""
    checksum = path.with_suffix(_CHECKSUM)
    if not (path.is_file() and checksum.is_file()):
        return False
    return checksum.read_bytes().strip() == file_digest(path).encode()


def fingerprint(tokenizer: Processor) -> str:
    """A hash of all that a tokenizer's output depends on, except what an earlier call changed."""
    parts: dict[str, Any] = {
        "class": type(tokenizer).__name__,
        "truncation_side": tokenizer.truncation_side,
        "inputs": tokenizer.model_input_names,
    }
    if tokenizer.is_fast:
        state = json.loads(tokenizer.backend_tokenizer.to_str())
        parts["state"] = state | {"truncation": None, "padding": None}
    else:
        kept = (str, int, float, bool)
        settings = {k: v for k, v in tokenizer.init_kwargs.items() if isinstance(v, kept)}
        parts |= {"vocabulary": tokenizer.get_vocab(), "settings": settings}
        parts["special"] = {k: str(v) for k, v in tokenizer.special_tokens_map.items()}
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def with_columns(data: Dataset, columns: dict[str, Sequence[Any]]) -> Dataset:
    """Add columns that are not kept in the cache, such as labels."""
    for name, values in columns.items():
        data = data.add_column(name, list(values))
    return data


def longest_first(data: Dataset) -> Dataset:
    """Sort by length: batches need little padding, and one too large for memory fails first."""
    order = np.argsort(-np.asarray(data["length"]), kind="stable")
    return data.select(order)
