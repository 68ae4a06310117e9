"""`results.csv`, as it is written and read again."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from headcount.errors import HeadcountError
from headcount.study.read import read_study
from headcount.study.results import load_study, write_results

from ..report.synthetic import Writer, answers


@pytest.fixture
def study(tmp_path: Path) -> Path:
    writer = Writer(tmp_path)
    for keep in (24, 12):
        writer.run("ste", keep, 0, {"dev": answers(keep)}, {"dev": keep / 200})
    return tmp_path


def rename_model(run: Path, name: str) -> None:
    settings = json.loads((run / "settings.json").read_text())
    (run / "settings.json").write_text(json.dumps(settings | {"model": f"models/{name}"}))


@pytest.mark.parametrize("name", ["=1+1", "@x", "-x", "NA", "007", "a\r=b", "'=x"])
def test_names_are_read_as_they_were_and_are_no_formulas(study: Path, name: str) -> None:
    for run in (study / "runs").iterdir():
        rename_model(run, name)
    assert write_results(study) == {}
    assert set(load_study(study)["model"]) == {name}
    read = read_study(study)
    assert set(read.results["model"]) == {name} and read.problems == []
    assert not (study / "results.csv").read_text().splitlines()[1].startswith(("=", "@", "-"))


def test_numbers_are_numbers(study: Path) -> None:
    path = study / "runs" / "ste-12-seed0" / "metrics.json"
    metrics = json.loads(path.read_text()) | {"scores": {"dev": {"accuracy": -0.25}}}
    path.write_text(json.dumps(metrics))
    write_results(study)
    found = load_study(study).set_index("keep")
    assert found.loc[12, "value"] == -0.25 and found.loc[24, "heads"] == 24
    assert found["seed"].dtype.kind == "i"


def test_scratch_and_unfinished_runs_are_no_results(study: Path) -> None:
    run = study / "runs" / "ste-12-seed0"
    for name in (".ste-6-seed0.0123456789abcdef.tmp", "ste-6-seed0.unfinished"):
        shutil.copytree(run, run.with_name(name))
    assert write_results(study) == {}
    assert len(load_study(study)) == 2


@pytest.mark.parametrize("file", ["metrics.json", "settings.json"])
@pytest.mark.parametrize("content", ["", "[]", '{"format": "headcount run 1"}', None])
def test_a_damaged_run_is_left_out_with_what_to_do(
    study: Path, file: str, content: str | None
) -> None:
    run = study / "runs" / "ste-12-seed0"
    if content is not None:
        (run / file).write_text(content)
    elif file == "settings.json":
        (run / file).unlink()
    else:
        metrics = json.loads((run / file).read_text()) | {"signatures": {}}
        (run / file).write_text(json.dumps(metrics))
    damaged = write_results(study)
    assert list(damaged) == ["ste-12-seed0"]
    assert f"delete the folder {run}" in damaged["ste-12-seed0"]
    assert "\n" not in damaged["ste-12-seed0"]
    assert list(load_study(study)["keep"]) == [24]


def test_a_damaged_table_is_refused(study: Path) -> None:
    (study / "results.csv").write_bytes(b'"\xff')
    with pytest.raises(HeadcountError, match=r"results\.csv cannot be read: .*; headcount compare"):
        load_study(study)
