from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import ByT5Tokenizer

from headcount.tasks.base import DataSettings
from headcount.tasks.prepared import cache_folder, draw, fingerprint, longest_first, prepared
from tests.tasks.tiny_text import SENTENCES, mistake, tiny_tokenizer

COLUMNS = {"first": list(SENTENCES)}


class Counting:
    """A tokenizer that counts how often it is asked."""

    def __init__(self, **settings: Any) -> None:
        self.tokenizer = tiny_tokenizer(**settings)
        self.calls = 0

    def __call__(self, batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
        self.calls += 1
        return dict(self.tokenizer(list(batch["first"]), truncation=True, max_length=9))


def test_the_second_time_nothing_is_tokenised(tmp_path: Path) -> None:
    tokenise = Counting()
    key = (fingerprint(tokenise.tokenizer), "9")
    first = prepared(COLUMNS, tokenise, key, tmp_path)
    key = (fingerprint(tokenise.tokenizer), "9")  # a call must not change it
    second = prepared(COLUMNS, tokenise, key, tmp_path)
    assert tokenise.calls == 1
    assert first[:] == second[:]
    assert first["length"] == [len(ids) for ids in first["input_ids"]]
    assert max(first["length"]) == 9
    assert sorted(f.suffix for f in tmp_path.rglob("*.*")) == [".arrow", ".blake2b"]


def test_a_changed_row_or_setting_is_tokenised_anew(tmp_path: Path) -> None:
    tokenise = Counting()
    changed = {"first": [*SENTENCES[:-1], SENTENCES[-1] + "!"]}
    swapped = {"first": list(SENTENCES[::-1])}
    for columns, key in ((COLUMNS, "9"), (changed, "9"), (swapped, "9"), (COLUMNS, "10")):
        prepared(columns, tokenise, (key,), tmp_path)
    assert tokenise.calls == 4


def test_the_fingerprint_is_of_what_matters() -> None:
    plain = fingerprint(tiny_tokenizer())
    assert plain == fingerprint(tiny_tokenizer())
    assert plain != fingerprint(tiny_tokenizer(truncation_side="left"))
    assert fingerprint(ByT5Tokenizer()) == fingerprint(ByT5Tokenizer())  # written in Python
    assert fingerprint(ByT5Tokenizer()) != fingerprint(ByT5Tokenizer(extra_ids=3))
    larger = tiny_tokenizer()
    larger.add_tokens(["sailor"])
    assert plain != fingerprint(larger)


def _flipped(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :]


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"nothing of the kind",
        lambda data: b"",
        lambda data: data[: len(data) // 2],
        lambda data: data[:-1],
        lambda data: data + b"more",
        # a token, and what describes the columns
        lambda data: _flipped(data, 8 * (len(data) // 16)),
        lambda data: _flipped(data, 40),
    ],
    ids=["other", "empty", "half", "cut", "longer", "token", "header"],
)
def test_a_damaged_file_is_made_again(damage: Callable[[bytes], bytes], tmp_path: Path) -> None:
    tokenise = Counting()
    whole = prepared(COLUMNS, tokenise, (), tmp_path)[:]
    (path,) = tmp_path.rglob("*.arrow")
    data = path.read_bytes()
    path.unlink()  # the file is mapped into memory: do not write into it
    path.write_bytes(damage(data))
    assert prepared(COLUMNS, tokenise, (), tmp_path)[:] == whole
    assert tokenise.calls == 2
    assert prepared(COLUMNS, tokenise, (), tmp_path)[:] == whole
    assert tokenise.calls == 2


def test_a_file_without_its_checksum_is_made_again(tmp_path: Path) -> None:
    tokenise = Counting()
    whole = prepared(COLUMNS, tokenise, (), tmp_path)[:]
    (checksum,) = tmp_path.rglob("*.blake2b")
    checksum.unlink()
    assert prepared(COLUMNS, tokenise, (), tmp_path)[:] == whole
    checksum.write_bytes(b"\xff\xff")
    assert prepared(COLUMNS, tokenise, (), tmp_path)[:] == whole
    assert tokenise.calls == 3


def test_an_interrupted_run_leaves_nothing_that_is_read_later(tmp_path: Path) -> None:
    columns = {"first": [str(n) for n in range(3000)]}

    def interrupted(batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
        if "2999" in batch["first"]:
            raise KeyboardInterrupt
        return {"input_ids": [[1, 2, 3] for _ in batch["first"]]}

    with pytest.raises(KeyboardInterrupt):
        prepared(columns, interrupted, (), tmp_path)
    data = prepared(columns, lambda b: {"input_ids": [[7]] * len(b["first"])}, (), tmp_path)
    assert len(data) == 3000
    assert data[0]["input_ids"] == [7]


KILLED = """
import os, signal, sys
from pathlib import Path
from headcount.tasks.prepared import prepared

def tokenise(batch):
    if "5999" in batch["first"]:
        os.kill(os.getpid(), signal.SIGKILL)
    return {"input_ids": [[1, 2, 3] for _ in batch["first"]]}

prepared({"first": [str(n) for n in range(6000)]}, tokenise, (), Path(sys.argv[1]))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")
def test_a_killed_run_leaves_nothing_that_is_read_later(tmp_path: Path) -> None:
    got = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], stderr=subprocess.DEVNULL)
    assert got.returncode == -signal.SIGKILL
    columns = {"first": [str(n) for n in range(6000)]}
    data = prepared(columns, lambda b: {"input_ids": [[7]] * len(b["first"])}, (), tmp_path)
    assert len(data) == 6000
    assert data[0]["input_ids"] == [7]


def test_a_cache_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with mistake("prepared data cannot be kept in .*file: .*HEADCOUNT_CACHE"):
        prepared(COLUMNS, Counting(), (), tmp_path / "file")


def test_the_cache_is_where_it_is_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEADCOUNT_CACHE", raising=False)
    assert cache_folder(DataSettings("d")) == Path.home() / ".cache" / "headcount"
    monkeypatch.setenv("HEADCOUNT_CACHE", str(tmp_path))
    assert cache_folder(DataSettings("d")) == tmp_path
    assert cache_folder(DataSettings("d", cache=tmp_path / "own")) == tmp_path / "own"


def test_a_draw_depends_on_the_seed_only() -> None:
    assert draw(10, None, 0) == draw(10, 10, 1) == draw(10, 99, 2) == list(range(10))
    some = draw(1000, 100, 3)
    assert some == draw(1000, 100, 3) == sorted(set(some))
    assert some != draw(1000, 100, 4)
    assert set(draw(1000, 50, 3)) < set(some)
    with mistake("cannot use 0 of 10 examples"):
        draw(10, 0, 0)


def test_the_longest_come_first_and_equals_keep_their_order(tmp_path: Path) -> None:
    rows = {"first": ["aa", "b", "cccc", "d", "ee"]}
    data = prepared(
        rows, lambda b: {"input_ids": [list(map(ord, t)) for t in b["first"]]}, (), tmp_path
    )
    assert longest_first(data)["length"][:] == [4, 2, 2, 1, 1]
    assert [ids[0] for ids in longest_first(data)["input_ids"]] == list(map(ord, "caebd"))
