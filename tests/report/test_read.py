"""A study's folder, read: what is there, and what is missing or broken."""

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest

from headcount.errors import HeadcountError
from headcount.plots.style import look
from headcount.pruners.methods import METHODS
from headcount.study.read import read_study


def test_results_find_their_runs(written_study: Path) -> None:
    study = read_study(written_study)
    assert len(study.runs) == 3 * (3 * 5 + 1 + 3)
    assert (study.results["run"] != "").all()
    lambdas = study.results[study.results["method"] == "hard-concrete"]
    assert set(lambdas["penalty"]) == {0.01, 0.1, 1.0}
    assert lambdas["k"].isna().all()
    run = study.runs["ste-12-seed1"]
    assert run.mask is not None and len(run.mask) == 12
    assert run.history is not None and run.history.selections[-1][0] == 1000
    assert len(run.predictions("matched")) == 200


def test_broken_and_missing_runs_are_told(study_folder: Path) -> None:
    runs = study_folder / "runs"
    (runs / "ste-12-seed1" / "metrics.json").write_text("{")
    (runs / "ste-6-seed1" / "mask.json").write_text("[]")
    (runs / "ste-2-seed1" / "selection_history.json").write_text("no")
    (runs / "michel-12-seed0" / "settings.json").unlink()
    shutil.rmtree(runs / "michel-36-seed2")
    (runs / "michel-36-seed2.unfinished").mkdir()
    importances = json.loads((runs / "ste-24-seed0" / "importance.json").read_text())
    importances["heads"].pop()
    (runs / "ste-24-seed0" / "importance.json").write_text(json.dumps(importances))
    results = pd.read_csv(study_folder / "results.csv")
    gone = (results["method"] == "joint-dsp") & (results["keep"] == 24) & (results["seed"] == 2)
    results[~gone].to_csv(study_folder / "results.csv", index=False)
    study = read_study(study_folder)
    told = "\n".join(study.problems)
    assert "run ste-12-seed1 is missing or broken" in told
    assert "run michel-36-seed2 is not finished" in told
    assert "run ste-24-seed0 has importances of 47 heads, but its mask is of 48" in told
    assert "run ste-6-seed1 has no readable mask" in told
    assert "run ste-2-seed1 has no readable selection history" in told
    assert "run michel-12-seed0 is missing or broken" in told
    assert "no readable run belongs to the result method:michel|keep:36/48|seed:2" in told
    assert "run joint-dsp-24-seed2 is finished but has no row" in told
    assert "matched: no result of joint-dsp with 24 heads for seed 2" in told
    with pytest.raises(HeadcountError, match="no readable predictions of other"):
        study.runs["ste-36-seed0"].predictions("other")


def test_a_study_says_itself_what_is_missing_and_in_which_order(study_folder: Path) -> None:
    few = {"keep": [36, 4], "seeds": [1]}
    settings = {
        "model": "bert-small", "task": "mnli", "data": "DIR", "seeds": [0, 1, 2, 3],
        "methods": ["ste", "few", "joint-dsp"], "keep": [36],
        "settings": {"few": {"method": "joint-dsp", **few}, "ste": few},
    }  # fmt: skip
    (study_folder / "study.json").write_text(json.dumps(settings))
    study = read_study(study_folder)
    told = [problem for problem in study.problems if ", matched: " in problem]
    assert [problem.partition("no result of ")[2] for problem in told] == [
        "ste with 4 heads for seed 1",
        "few with 36 heads for seed 1",
        "few with 4 heads for seed 1",
        "joint-dsp with 36 heads for seed 3",
    ]
    comparison = next(study.comparisons())
    assert comparison.methods == ["ste", "joint-dsp", "hard-concrete", "michel"]
    (study_folder / "study.json").write_text("{}")
    study = read_study(study_folder)
    assert [p for p in study.problems if "is guessed" in p]
    assert next(study.comparisons()).methods[0] == "joint-dsp"


def test_every_variant_has_a_look_of_its_own() -> None:
    names = ["l0-0.1", "l0-1.0", "ab", "ba", *METHODS, *(f"dsp-{n}" for n in range(12))]
    looks = [look(name, names) for name in names if name != "unpruned"]
    told_apart = {(one["color"], one["marker"]) for one in looks}
    assert len(told_apart) == len(looks)
    assert look("ste", names) == look("ste")


def test_broken_and_repeated_rows_are_told(study_folder: Path) -> None:
    results = pd.read_csv(study_folder / "results.csv").astype({"value": object})
    results = pd.concat([results, results.iloc[[3]]])
    results.iloc[0, results.columns.get_loc("value")] = "broken"
    results.to_csv(study_folder / "results.csv", index=False)
    told = "\n".join(read_study(study_folder).problems)
    assert "line 2 of results.csv has no value, heads or seed" in told
    assert "twice; the last one counts" in told


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "is no study"),
        ("", "is no study"),
        ("a,b\n1,2\n", "no column model"),
        ("model,task,method,keep,seed,split,metric,value,heads,parameters,seconds,signature\n",
         "no results yet"),
    ],
)  # fmt: skip
def test_a_folder_that_is_no_study_is_refused(tmp_path: Path, text: str | None, says: str) -> None:
    if text is not None:
        (tmp_path / "results.csv").write_text(text)
    with pytest.raises(HeadcountError, match=says):
        read_study(tmp_path)


@pytest.mark.parametrize(
    ("file", "content", "says"),
    [
        ("metrics.json", "null", "run ste-6-seed1 is missing or broken"),
        ("metrics.json", "[" * 200_000, "run ste-6-seed1 is missing or broken"),
        ("settings.json", "[]", "run ste-6-seed1 is missing or broken: its settings.json is not"),
        ("settings.json", '{"settings": [1]}', r"'settings' is [1], expected names with values"),
        ("settings.json", '{"settings": {"lambda": "much"}}', "'lambda' is 'much'"),
        ("settings.json", '{"seed": "one"}', "'seed' is 'one', expected a whole number"),
        ("importance.json", '{"heads": {}}', "run ste-6-seed1 has no readable importances"),
        ("selection_history.json", '{"selections": [{"step": 1, "heads": [99]}]}',
         "run ste-6-seed1 has a selection history of head 99, but its mask is of 48 heads"),
        ("selection_history.json", '{"selections": 3}', "has no readable selection history"),
        ("mask.json", "null", "run ste-6-seed1 has no readable mask"),
    ],
)  # fmt: skip
def test_a_damaged_file_of_a_run_is_a_problem(
    study_folder: Path, file: str, content: str, says: str
) -> None:
    (study_folder / "runs" / "ste-6-seed1" / file).write_text(content)
    study = read_study(study_folder)
    assert [problem for problem in study.problems if says in problem]
    assert len(study.runs) >= 56


@pytest.mark.parametrize("content", ["[]", "null", '{"methods": 3}', "[" * 2000, "\x00", "{"])
def test_a_damaged_study_file_is_a_problem(study_folder: Path, content: str) -> None:
    (study_folder / "study.json").write_text(content)
    study = read_study(study_folder)
    assert [problem for problem in study.problems if "is guessed from its results" in problem]


@pytest.mark.parametrize(
    ("column", "cell", "fine"),
    [
        ("seed", "inf", False), ("seed", "1e300", False), ("seed", "0.5", False),
        ("seed", "9" * 400, False), ("heads", "inf", False), ("heads", "-", False),
        ("value", "9" * 400, True), ("value", "inf", True), ("seconds", "inf", True),
        ("keep", "1e999", True),
    ],
)  # fmt: skip
def test_numbers_that_cannot_be_are_told(
    study_folder: Path, column: str, cell: str, fine: bool
) -> None:
    results = pd.read_csv(study_folder / "results.csv", dtype=str)
    results.loc[0, column] = cell
    results.to_csv(study_folder / "results.csv", index=False)
    study = read_study(study_folder)
    told = [p for p in study.problems if p.startswith("line 2 of results.csv has no value")]
    assert bool(told) is not fine


def test_results_with_too_many_fields_are_refused(study_folder: Path) -> None:
    head, *rows = (study_folder / "results.csv").read_text().splitlines()
    (study_folder / "results.csv").write_text("\n".join([head, *(f"{row},x" for row in rows)]))
    with pytest.raises(HeadcountError, match=r"its results\.csv cannot be read"):
        read_study(study_folder)
