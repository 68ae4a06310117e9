"""The folder of an unfinished run: whose it is, what it was begun with, and who holds it."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from filelock import FileLock

from headcount import atomic
from headcount.errors import HeadcountError
from headcount.runs import resume
from headcount.runs.prune import prune
from headcount.runs.settings import RunSettings, TrainingSettings
from tests.runs.stopping import stopped_training


@pytest.fixture
def settings(encoder: Path, tables: Path, tmp_path: Path) -> RunSettings:
    data = shutil.copytree(tables, tmp_path / "data")
    training = TrainingSettings(epochs=2.0, batch_size=16, learning_rate=1e-3)
    return RunSettings(
        str(encoder), "classification", str(data), method="joint-dsp", keep=3, training=training
    )


@pytest.fixture
def stopped(settings: RunSettings, tmp_path: Path) -> Path:
    """The unfinished folder of a run that was stopped in the middle of its training."""
    with stopped_training():
        prune(settings, tmp_path / "m", speed=False)
    return tmp_path / "m.unfinished"


def go_on(settings: RunSettings, folder: Path) -> None:
    prune(settings, folder.with_suffix(""), resume=True, speed=False)


def test_a_folder_of_somebody_else_is_refused_and_left_alone(
    settings: RunSettings, tmp_path: Path
) -> None:
    (tmp_path / "m.unfinished").mkdir()
    (tmp_path / "m.unfinished" / "thesis.txt").write_text("all of it")
    (tmp_path / "m.unfinished" / "settings.json").write_text('{"theirs": true}')
    for again in (False, True):
        with pytest.raises(HeadcountError, match="is not a run of headcount; move it"):
            prune(settings, tmp_path / "m", resume=again, speed=False)
    assert (tmp_path / "m.unfinished" / "thesis.txt").read_text() == "all of it"
    assert not (tmp_path / "m").exists()


def test_an_empty_folder_and_a_link_are_not_adopted_either(
    settings: RunSettings, tmp_path: Path
) -> None:
    (tmp_path / "m.unfinished").mkdir()
    (tmp_path / "n.unfinished").symlink_to(tmp_path / "nowhere")
    (tmp_path / "o.unfinished").mkdir()
    (tmp_path / "o.unfinished" / "settings.json").write_text("[" * 100_000)
    for name in ("m", "n", "o"):
        with pytest.raises(HeadcountError, match="is in the way"):
            prune(settings, tmp_path / name, speed=False)
    assert list((tmp_path / "m.unfinished").iterdir()) == []
    assert not (tmp_path / "nowhere").exists()


def test_a_file_that_somebody_put_beside_the_checkpoints_stays(
    settings: RunSettings, stopped: Path
) -> None:
    (stopped / "thesis.txt").write_text("all of it")
    go_on(settings, stopped)
    assert [path.name for path in stopped.iterdir()] == ["thesis.txt"]


def test_other_data_is_refused(settings: RunSettings, stopped: Path) -> None:
    table = Path(settings.data) / "train.csv"
    text = table.read_text()
    table.write_text(text.replace(",good", ",neutral", 1).replace(",bad", ",good", 1))
    before = sorted(path.name for path in stopped.rglob("*"))
    with pytest.raises(HeadcountError, match="the data have changed since"):
        go_on(settings, stopped)
    assert sorted(path.name for path in stopped.rglob("*")) == before
    table.write_text(text)
    go_on(settings, stopped)


def test_a_base_model_of_other_data_is_refused(settings: RunSettings, tmp_path: Path) -> None:
    scored = replace(settings, method="michel")
    prune(scored, tmp_path / "m", base=tmp_path / "base", speed=False)
    table = Path(settings.data) / "train.csv"
    table.write_text(table.read_text().replace(",good", ",bad", 1))
    with pytest.raises(HeadcountError, match=r"the data have changed since .*base was begun"):
        prune(scored, tmp_path / "n", base=tmp_path / "base", speed=False)


def checkpoint(folder: Path) -> Path:
    (found,) = folder.glob("checkpoint-*")
    return found


@pytest.mark.parametrize(
    "name",
    [
        "optimizer.pt", "scheduler.pt", "rng_state.pth", "model.safetensors", "config.json",
        "pruner.json", "pruner.safetensors", "selection_history.json", "trainer_state.json",
    ],
)  # fmt: skip
@pytest.mark.parametrize("damage", ["gone", "cut", "flipped"])
def test_a_checkpoint_is_complete_or_refused(
    settings: RunSettings, stopped: Path, name: str, damage: str
) -> None:
    file = checkpoint(stopped) / name
    content = bytearray(file.read_bytes())
    file.unlink()
    if damage == "cut":
        file.write_bytes(content[: len(content) // 2])
    if damage == "flipped":
        content[-3] ^= 0x11
        file.write_bytes(content)
    if name == "trainer_state.json":  # it is written last, so it is broken by a kill
        go_on(settings, stopped)
        return
    with pytest.raises(HeadcountError, match=r"is damaged: .* (missing|changed); delete it, and"):
        go_on(settings, stopped)
    shutil.rmtree(checkpoint(stopped))
    go_on(settings, stopped)


def test_damaged_times_cost_the_times_and_nothing_else(
    settings: RunSettings, stopped: Path
) -> None:
    (stopped / "elapsed.json").write_text('{"earlier": "long", "since": NaN}')
    (stopped / "seconds.json").write_text("[" * 100_000)
    go_on(settings, stopped)


def test_one_process_at_a_time(settings: RunSettings, stopped: Path) -> None:
    with (
        FileLock(stopped / "lock"),
        pytest.raises(HeadcountError, match=r"another process is writing .*m; wait for it, or"),
    ):
        go_on(settings, stopped)
    go_on(settings, stopped)


def test_scratch_that_a_kill_left_is_swept(settings: RunSettings, tmp_path: Path) -> None:
    ours, theirs = tmp_path / ".m.0123456789abcdef.tmp", tmp_path / ".m.mine.tmp"
    for folder in (ours, theirs):
        folder.mkdir()
        (folder / "metrics.json").write_text("{}")
    prune(settings, tmp_path / "m", speed=False)
    assert not ours.exists() and theirs.exists()


def test_scratch_of_other_processes_is_spared_for_an_hour(tmp_path: Path) -> None:
    old, young = (tmp_path / f".a.{16 * digit}.tmp" for digit in "01")
    for file in (old, young):
        file.touch()
    os.utime(old, (0, 0))
    atomic.sweep(tmp_path / "a", older_than=3600)
    assert not old.exists() and young.exists()


def test_a_planted_link_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secret").write_text("mine")
    monkeypatch.setattr(atomic.secrets, "token_hex", lambda size: "0" * 16)
    (tmp_path / ".a.0000000000000000.tmp").symlink_to(tmp_path / "secret")
    with pytest.raises(FileExistsError):
        atomic.write_text(tmp_path / "a", "ours")
    assert (tmp_path / "secret").read_text() == "mine"
    assert not (tmp_path / "a").exists()


def test_a_link_in_the_place_of_a_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("mine")
    (tmp_path / "a").symlink_to(tmp_path / "secret")
    atomic.write_text(tmp_path / "a", "ours")
    assert (tmp_path / "secret").read_text() == "mine"
    assert (tmp_path / "a").read_text() == "ours" and not (tmp_path / "a").is_symlink()


def test_names_as_long_as_the_system_allows_can_be_written(tmp_path: Path) -> None:
    for name in ("x" * 255, "é" * 127):
        atomic.write_text(tmp_path / name, "whole")
        with atomic.new_folder(tmp_path / f"{name[:-1]}f") as folder:
            (folder / "file").touch()


def test_a_list_that_is_damaged_is_told(stopped: Path, settings: RunSettings) -> None:
    (checkpoint(stopped) / "files.json").write_text("[1]")
    with pytest.raises(HeadcountError, match=r"is damaged: files\.json cannot be read"):
        go_on(settings, stopped)
    os.unlink(checkpoint(stopped) / "files.json")  # as if the kill had come just before it
    go_on(settings, stopped)
    assert json.loads((stopped.with_suffix("") / "metrics.json").read_text())


def test_what_torch_says_about_a_full_disk_is_known() -> None:
    for words in ("PytorchStreamWriter failed writing file", "inline_container.cc:664] . unexp"):
        assert resume._is_about_room(RuntimeError(words))
