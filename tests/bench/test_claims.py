"""What a measuring script prints is what the page of all of them says."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from headcount.bench.speed import Spread

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def claims(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(FOLDER)
    return import_module("measuring.claims")


def test_claims_are_read_as_they_are_said(
    claims: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    print("some: words (that claim nothing)")
    claims.say("slow, batch 8: a / b", Spread(1.5, 1.25, 1.75), at_most=1.3)
    claims.say("fast", 2.0, at_least=1.3)
    found = claims.read(capsys.readouterr().out)
    assert [(c.name, c.value, c.spread, c.met) for c in found] == [
        ("slow, batch 8: a / b", 1.5, ", quartiles 1.250 to 1.750", False),
        ("fast", 2.0, "", True),
    ]


def test_page_tells_what_is_met_and_what_failed(claims: ModuleType, tmp_path: Path) -> None:
    page = import_module("all")
    script = tmp_path / "small.py"
    script.write_text(
        '"""About it."""\nimport sys\nprint("a: 1.500, quartiles 1.250 to 1.750 (at most 1.3)")\n'
        'print("b: 2.000 (at least 1)")\nsys.exit("no luck")\n'
    )
    text, wrong = page.run(script)
    assert wrong == "no luck"
    lines = page.section(script, text, wrong)
    assert "About it." in lines
    assert "| a | 1.500 (1.250–1.750) | at most 1.3 | **missed** |" in lines
    assert "| b | 2.000 | at least 1 | met |" in lines
    assert "**It failed: no luck**" in lines
