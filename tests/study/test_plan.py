"""A study file that asks for what cannot be is refused before anything runs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from headcount import HeadcountError
from headcount.study.plan import StudySettings


def read(tmp_path: Path, **changed: Any) -> StudySettings:
    settings = {
        "model": "bert",
        "task": "mnli",
        "data": "DIR",
        "methods": ["unpruned", "michel"],
        "keep": [4, 2],
        "training": {"epochs": 1},
    }
    path = tmp_path / "study.yaml"
    path.write_text(yaml.safe_dump(settings | changed, sort_keys=False))
    return StudySettings.read(path)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"seeds": [-1]}, r"line \d+: seed is -1, expected a whole number"),
        ({"seeds": [True]}, r"line \d+: seeds is \[True\], expected a list"),
        ({"keep": [float("inf")]}, r"line 7: keep is \[inf\], expected a list"),
        ({"methods": [[]]}, r"line 4: methods is \[\[\]\], expected a list"),
        ({"methods": [{}]}, r"line 4: methods is \[\{\}\], expected a list"),
        ({"settings": {"michel": {"method": []}}}, r"line \d+: method is \[\], expected text"),
        ({"settings": {"michel": {"training": {"warmup": float("inf")}}}}, r"line \d+: warmup is"),
        ({"settings": {"michel": {"training": {"epochs": -1}}}}, r"line \d+: epochs is -1.0, expe"),
        ({"settings": {"michel": {"training": {"report_to": "x"}}}}, r"line \d+: report_to is 'x'"),
        ({"settings": {"michel": 3}}, r"line \d+: michel must have settings below it"),
        ({"settings": {1: {}}}, r"line \d+: 1 is not among the methods"),
        ({"training": {"epochs": float("nan")}}, r"line \d+: epochs is nan, expected a number"),
        ({"cache": [0.5]}, r"line 12: keep and cache each say how many heads stay; give one of"),
        ({"keep": [], "cache": ["half"]}, r"line 10: cache is \['half'\], expected a list"),
        ({"keep": [], "cache": [0]}, r"line 10: cache is 0.0, expected a share above 0 and up to"),
        ({"keep": [], "within": 2}, r"line 10: within is 2.0, expected a number above 0 and below"),
        (
            {"keep": [], "within": 0.1, "methods": ["michel", "ste"]},
            r"line 10: within tries many numbers .* ste would train again; choose one of surgeon",
        ),
        (
            {"settings": {"michel": {"cache": 0.5, "within": 0.1}}},
            r"line \d+: cache and within each say how many heads stay",
        ),
        ({"settings": {"unpruned": {"cache": 0.5}}}, r"line \d+: unpruned keeps all heads; remove"),
        (
            {
                "methods": ["joint-dsp"],
                "keep": [],
                "parameters": [0.9, 0.8],
                "settings": {"joint-dsp": {"one_run": True}},
            },
            r"line \d+: one_run needs the keep of joint-dsp in numbers",
        ),
    ],
)
def test_what_cannot_be_is_told_with_its_line(
    changed: dict[str, Any], said: str, tmp_path: Path
) -> None:
    with pytest.raises(HeadcountError, match=said):
        read(tmp_path, **changed)


@pytest.mark.parametrize("name", ["x" * 300, "ж" * 120])
def test_a_variant_with_a_name_that_no_folder_can_have_is_told(name: str, tmp_path: Path) -> None:
    own = {name: {"method": "michel"}}
    with pytest.raises(HeadcountError, match=r"line \d+: the name .* bytes, expected at most 200"):
        read(tmp_path, methods=["unpruned", name], settings=own)


def test_a_study_of_more_runs_than_anybody_waits_for_is_told(tmp_path: Path) -> None:
    began = time.monotonic()
    with pytest.raises(
        HeadcountError, match=r"line 4: this study has 16,002,000 runs, expected at"
    ):
        read(tmp_path, keep=list(range(1, 8001)), seeds=list(range(2000)))
    assert time.monotonic() - began < 10


def test_a_study_may_ask_for_something_else_than_numbers(tmp_path: Path) -> None:
    own = {"michel": {"within": [0.05, 0.01]}, "random": {"keep": [4]}}
    methods = ["unpruned", "michel", "random", "ste"]
    study = read(tmp_path, keep=[], cache=[0.5, 0.75], methods=methods, settings=own)
    runs = study.runs()
    assert list(runs) == [
        "unpruned-all-seed0", "michel-within0.01-seed0", "michel-within0.05-seed0",
        "random-4-seed0", "ste-cache0.75-seed0", "ste-cache0.5-seed0",
    ]  # fmt: skip
    assert runs["ste-cache0.75-seed0"].cache == 0.75
    assert runs["michel-within0.01-seed0"].within == 0.01
    assert [run.keep for run in runs.values()] == [None, None, None, 4, None, None]
