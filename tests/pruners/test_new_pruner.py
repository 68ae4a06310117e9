"""A new pruner is a file and a row: everything else in the house takes it as it comes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import headcount as hc
from headcount import HeadcountError
from headcount.plots.style import look
from headcount.pruners.methods import METHODS, find_pruner, make_pruner, register_method
from headcount.report.write import write_report
from headcount.runs.prune import prune
from headcount.runs.settings import RunSettings, TrainingSettings
from headcount.study.plan import StudySettings
from headcount.study.run import run_study
from tests.pruners.loudest import Loudest
from tests.small_task import HEADS

BRIEF = TrainingSettings(epochs=1.0, batch_size=16)


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    register_method(Loudest)
    yield
    del METHODS[Loudest.name]


def test_it_prunes(encoder: Path, tables: Path, tmp_path: Path) -> None:
    settings = RunSettings(
        str(encoder), "classification", str(tables), "loudest", 3, training=BRIEF,
        settings={"power": 1.0, "compensate": True},
    )  # fmt: skip
    result = prune(settings, tmp_path / "out", base=tmp_path / "base", speed=False)
    assert result.heads.after == 3
    assert result.signatures["validation"].startswith(f"method:loudest|keep:3/{HEADS}|compensated")
    importance = json.loads((tmp_path / "out" / "importance.json").read_text())
    assert importance["method"] == "loudest"
    assert sum(row["kept"] for row in importance["heads"]) == 3


def test_it_is_compared_and_reported(encoder: Path, tables: Path, tmp_path: Path) -> None:
    written = {
        "model": str(encoder), "task": "classification", "data": str(tables),
        "methods": ["unpruned", "loudest", "loudest-fitted"], "keep": [4, 2],
        "training": {"epochs": 1, "batch_size": 16},
        "settings": {"loudest-fitted": {"method": "loudest", "compensate": True}}, "speed": False,
    }  # fmt: skip
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(written, sort_keys=False))
    study = StudySettings.read(tmp_path / "study.yaml")
    assert run_study(study, tmp_path / "study") == {}
    assert len(hc.load_study(tmp_path / "study")) == 5
    # One ranking serves every number of heads, fitted or not.
    assert len(list((tmp_path / "study" / "rankings").iterdir())) == 1
    write_report(tmp_path / "study")
    page = (tmp_path / "study" / "report" / "report.html").read_text(encoding="utf-8")
    assert "loudest-fitted" in page
    assert look("loudest")["color"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"powr": 2}, "loudest has no setting powr; it has .*power"),
        ({"power": "loud"}, "power of loudest is 'loud', expected a number"),
        ({"commit_at": 0.5}, "loudest has no setting commit_at"),
    ],
)
def test_its_settings_are_checked_by_its_dataclass(given: dict[str, Any], said: str) -> None:
    with pytest.raises(HeadcountError, match=said):
        make_pruner("loudest", 3, given)


def test_a_wrong_setting_in_a_study_is_told_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text(
        "model: m\ntask: mnli\ndata: d\nmethods: [loudest]\nkeep: [2]\nsettings:\n"
        "  loudest:\n    power: loud\n"
    )
    with pytest.raises(HeadcountError, match=r"line 8: power of loudest is 'loud'"):
        StudySettings.read(tmp_path / "study.yaml")


def test_a_name_that_is_taken_is_refused() -> None:
    class Other(Loudest):
        name = "michel"

    with pytest.raises(HeadcountError, match="there is a method 'michel' already"):
        register_method(Other)
    assert find_pruner("michel") is hc.Michel
