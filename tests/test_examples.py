"""The examples run as they stand."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_keeps_its_heads_and_learns_its_task(example: Path) -> None:
    done = subprocess.run(
        [sys.executable, example.name], cwd=example.parent, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "removed 12 heads" in done.stdout
    accuracy = re.search(r"accuracy ([\d.]+) on new data", done.stdout)
    assert accuracy and float(accuracy[1]) > 0.68, done.stdout  # 0.63 says yes to all
