"""A report is written over a report, and over nothing else."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from headcount.errors import HeadcountError
from headcount.plots import style
from headcount.report.own_files import LIST, put_in_place, written_aside
from headcount.report.write import write_report

from ..cli.conftest import headcount  # noqa: F401
from .synthetic import Writer, answers


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(style, "FORMATS", ("svg",))  # saving is what takes the time
    writer = Writer(tmp_path / "study")
    for keep in (24, 12):
        writer.run("ste", keep, 0, {"dev": answers(keep)}, {"dev": keep / 200})
    return writer.finish()


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_report_is_written_again(study: Path) -> None:
    first = write_report(study)
    before = contents(first.folder)
    assert write_report(study).written == first.written
    assert contents(first.folder) == before
    assert set(before) == {*first.written, first.folder / LIST}


@pytest.mark.parametrize("name", ["report.html", "tables/dev.csv", "figures/layers-ste.svg"])
def test_a_file_of_the_users_is_not_written_over(
    study: Path,
    tmp_path: Path,
    headcount: Any,  # noqa: F811
    name: str,
) -> None:
    mine = tmp_path / "mine" / name
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    refused = headcount("report", study, "--output", tmp_path / "mine")
    assert refused.code == 2
    assert f"{mine} is in the way: headcount report did not write it" in refused.err
    assert contents(tmp_path / "mine") == {mine: b"mine"}


def test_a_table_that_was_changed_by_hand_is_not_written_over(study: Path) -> None:
    table = write_report(study).folder / "tables" / "dev.tex"
    table.write_text("changed")
    with pytest.raises(HeadcountError, match="or it was changed since; move it"):
        write_report(study)
    assert table.read_text() == "changed"
    table.unlink()
    write_report(study)


@pytest.mark.parametrize("name", ["", "report.html", "tables", LIST])
@pytest.mark.parametrize("there", [True, False])
def test_links_are_not_followed(study: Path, tmp_path: Path, name: str, there: bool) -> None:
    if not name and there:
        pytest.skip("the folder itself may be a link to one")
    target = tmp_path / "elsewhere"
    if there and name == "tables":
        target.mkdir()
    elif there:
        target.write_text("{}")
    link = tmp_path / "out" / name
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(target)
    with pytest.raises(HeadcountError):
        write_report(study, output=tmp_path / "out")
    assert link.is_symlink() and target.exists() == there
    assert not contents(tmp_path / "out") or (there and contents(tmp_path / "out") == {link: b"{}"})


@pytest.mark.parametrize("content", ["", "[]", '{"format": "other"}', '{"files": 1}'])
def test_without_its_list_nothing_is_known_to_be_ours(study: Path, content: str) -> None:
    folder = write_report(study).folder
    (folder / LIST).write_text(content)
    before = contents(folder)
    with pytest.raises(HeadcountError, match=r"cannot tell which files of .* are its own"):
        write_report(study)
    assert contents(folder) == before


def test_a_kill_while_files_are_moved_leaves_only_our_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(text: str) -> None:
        with written_aside(tmp_path) as scratch:
            for name in ("a", "b"):
                (scratch / name).write_text(text)
            put_in_place(scratch, tmp_path)

    write("first")
    moved: list[Path] = []

    def killed(scratch: Path, place: Path) -> None:
        if moved:
            raise KeyboardInterrupt
        os.replace(scratch, place)
        moved.append(place)

    monkeypatch.setattr("headcount.report.own_files.give_name", killed)
    with pytest.raises(KeyboardInterrupt):
        write("second")
    monkeypatch.undo()
    assert [(tmp_path / name).read_text() for name in ("a", "b")] == ["second", "first"]
    write("third")
    digests = json.loads((tmp_path / LIST).read_text())["files"].values()
    assert [len(of) for of in digests] == [1, 1]


def test_scratch_of_a_killed_report_is_swept(study: Path) -> None:
    folder = write_report(study).folder
    random = "0123456789abcdef"
    ours = [
        folder / f".report.html.{random}.tmp" / "tables" / "dev.md",
        folder / "figures" / f".layers-ste.svg.{random}.tmp",
        folder / f".{LIST}.{random}.tmp",
    ]
    others = [
        folder / "figures" / f".mine.svg.{random}.tmp",
        folder / "figures" / ".layers-ste.svg.notes.tmp",
        folder / "figures" / f".metric-dev.svg.{random}.tmp",  # of a report that is written now
    ]
    for path in (*ours, *others):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("scratch")
        old = time.time() - (3700 if path is not others[-1] else 60)
        for each in (path, path.parent, path.parent.parent):
            os.utime(each, (old, old))
    write_report(study)
    assert not any(path.exists() for path in ours)
    assert all(path.exists() for path in others)
    assert not (folder / f".report.html.{random}.tmp").exists()
