"""Where the output goes: a full device, a closed pipe, few signs; and damaged runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headcount.study.plan import StudySettings

from ..report.synthetic import Writer, answers

MAIN = "from headcount.cli import main; main()"


def start(*arguments: str, **how: Any) -> subprocess.Popen[str]:
    more = how.pop("env", {})
    return subprocess.Popen(
        [sys.executable, "-c", MAIN, *arguments], stderr=subprocess.PIPE, text=True,
        env={**os.environ, **more}, **how,
    )  # fmt: skip


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["methods"]])
def test_a_full_device_is_one_sentence(arguments: list[str]) -> None:
    with open("/dev/full", "w") as full:
        command = start(*arguments, stdout=full)
        _, told = command.communicate()
    assert command.returncode == 2
    assert told.startswith("headcount: cannot print the result: No space left on device; make")
    assert told.count("\n") == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_where_not_even_that_can_be_said_the_exit_code_does() -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-c", MAIN, "report", "/nowhere"]
        assert subprocess.run(command, stdout=full, stderr=full, check=False).returncode == 2


@pytest.mark.parametrize("arguments", [["--version"], ["methods"]])
def test_a_closed_pipe_is_no_mistake(arguments: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)
    command = start(*arguments, stdout=write)
    os.close(write)
    _, told = command.communicate()
    assert (command.returncode, told) == (1, "")


def test_a_screen_with_few_signs() -> None:
    ascii_only = {"PYTHONIOENCODING": "ascii"}
    command = start("methods", "hard-concrete", stdout=subprocess.PIPE, env=ascii_only)
    out, told = command.communicate()
    assert (command.returncode, told) == (0, "")
    assert "lambda" in out and out.isascii()


def test_a_damaged_run_does_not_stop_a_study(tmp_path: Path, headcount: Any) -> None:
    file, folder = tmp_path / "study.yaml", tmp_path / "study"
    file.write_text(
        "model: nowhere\ntask: mnli\ndata: nowhere\nmethods: [ste]\nkeep: [4, 2]\nseeds: [0]\n"
        "speed: false\n"
    )
    writer = Writer(folder)
    for name, settings in StudySettings.read(file).runs().items():
        assert isinstance(settings.keep, int)
        run = writer.run("ste", settings.keep, 0, {"dev": answers(9)}, {"dev": 0.45})
        assert run.name == name
        (run / "settings.json").write_text(json.dumps(settings.to_dict()))
    ended = headcount("compare", file, "--output", folder)
    assert ended.code == 0
    assert "With the fewest heads, 2, ste is best: accuracy 45.0 %." in ended.out
    (folder / "runs" / "ste-2-seed0" / "metrics.json").write_text("{")
    ended = headcount("compare", file, "--output", folder)
    assert ended.code == 2
    assert "ste-2-seed0" in ended.err and "45.0" in ended.out
