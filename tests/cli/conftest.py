from __future__ import annotations

import sys
from typing import Any

import pytest

from headcount.cli import main


class Outcome:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err


@pytest.fixture
def headcount(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    def call(*arguments: object, columns: int = 120) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["headcount", *map(str, arguments)])
        monkeypatch.setenv("COLUMNS", str(columns))
        capsys.readouterr()  # what the preparation of the test has printed
        with pytest.raises(SystemExit) as ended:
            main()
        code = ended.value.code
        return Outcome(code if isinstance(code, int) else 0, *capsys.readouterr())

    return call
