from __future__ import annotations

import os
from pathlib import Path

import pytest

from headcount.tasks.files import find_data, list_folder, read_lines
from tests.tasks.tiny_text import mistake


def test_what_has_nul_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_bytes(b"one\na\0b\n")
    with mistake("is not UTF-8: line 2 has the byte 0x00 .* convert"):
        read_lines(tmp_path / "t.txt")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no such files")
def test_pipes_and_devices_are_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "zero.csv").symlink_to("/dev/zero")
    for name in ("pipe.csv", "zero.csv"):
        with mistake("cannot be read: it is a pipe or a device; write"):
            read_lines(tmp_path / name)
        with mistake("is neither a file nor a folder, but a pipe"):
            find_data(str(tmp_path / name), [".csv"])


def test_names_that_no_file_can_have_are_told(tmp_path: Path) -> None:
    for name in ("x" * 5000 + ".csv", "a\0b.csv"):
        with mistake("there is no file or folder"):
            find_data(str(tmp_path / name), [".csv"])
    with mistake("there is no file or folder ~nobody-here/t.csv"):
        find_data("~nobody-here/t.csv", [".csv"])


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read all")
def test_a_folder_that_may_not_be_read_is_told(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0)
    with mistake("the folder .* cannot be read: Permission denied"):
        list_folder(closed)
    closed.chmod(0o700)
