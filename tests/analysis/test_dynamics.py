from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headcount.analysis.base import load_analysis
from headcount.analysis.dynamics import dynamics
from headcount.cli import app
from headcount.errors import HeadcountError
from headcount.heads.mask import HeadMask
from headcount.training.history import SelectionHistory
from tests.report.synthetic import write_study

KEPT = (0, 1, 2, 3)


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """One run, whose choice settles at step 30 of 100."""
    folder = write_study(tmp_path / "study")
    for run in folder.glob("runs/*"):
        if run.name != "joint-dsp-12-seed0":
            (run / "selection_history.json").unlink(missing_ok=True)
    layout = HeadMask.load(folder / "runs/joint-dsp-12-seed0/mask.json").layout
    history = SelectionHistory()
    for step, heads in ((0, (4, 5, 6, 7)), (10, (0, 1, 6, 7)), (30, KEPT), (60, KEPT), (100, KEPT)):
        history.record(step, HeadMask("bert", layout, frozenset(heads)), 1.0 / (1 + step))
    place = folder / "runs/joint-dsp-12-seed0"
    history.save(place / "selection_history.json")
    HeadMask("bert", layout, frozenset(KEPT)).save(place / "mask.json")
    return folder


def test_a_choice_settles_where_it_stops_moving(study: Path) -> None:
    (course,) = dynamics(study).courses
    assert course.settles_at == 30 and course.last == 100
    assert [moment.share for moment in course.moments] == [0.0, 0.5, 1.0, 1.0, 1.0]
    assert course.temperature == pytest.approx(1 / 31)
    row = dynamics(study).table().iloc[0]
    assert row["share of the training"] == pytest.approx(0.3)
    assert row["final heads selected at half, %"] == 100.0


@pytest.mark.parametrize("method", ["fixed", "random", "unpruned"])
def test_heads_that_were_given_did_not_settle(study: Path, method: str) -> None:
    file = study / "runs/joint-dsp-12-seed0/metrics.json"
    file.write_text(file.read_text().replace('"joint-dsp"', f'"{method}"'))
    with pytest.raises(HeadcountError, match="heads that it chose"):
        dynamics(study)


def test_the_command_saves_what_it_found(study: Path) -> None:
    done = CliRunner().invoke(app, ["dynamics", str(study)])
    assert done.exit_code == 0, done.output
    assert load_analysis(study / "analyses" / "dynamics") == dynamics(study)


def test_a_study_without_histories_says_so(study: Path) -> None:
    shutil.rmtree(study / "runs/joint-dsp-12-seed0")
    with pytest.raises(HeadcountError, match=r"no run of .* has a selection history"):
        dynamics(study)
