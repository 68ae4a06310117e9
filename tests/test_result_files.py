"""Files of results that are damaged, or something else: one sentence from each reader."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headcount import HeadcountError, HeadMask
from headcount.json_file import checked, entry, parse_json, read_json
from headcount.runs.output import load_importances, save_importances, scoring_seconds
from headcount.runs.result import RunResult, Sides
from headcount.study.run_record import Run
from headcount.training.history import SelectionHistory

MASK = HeadMask("bert", (("encoder.0", 4),), frozenset({0, 2}))
SIDES = Sides(4, 2)
RESULT = RunResult(
    "ste", "accuracy", True, {"dev": {"accuracy": 0.5}}, {"dev": {"accuracy": 0.75}},
    {"dev": "method:ste"}, SIDES, SIDES, SIDES, None, SIDES, 0.0, {"training": 60.0}, 2,
)  # fmt: skip
NO_JSON = {
    "empty": "",
    "cut": '{"format": ',
    "null": "null",
    "list": "[]",
    "number": "3",
    "deep": "[" * 200_000,
    "deep objects": '{"heads":' * 200_000,
    "huge": "9" * 5000,
    "half a character": '{"format": "\\ud800"}',
}


def write_result(folder: Path, **changed: Any) -> None:
    RESULT.save(folder)
    data = json.loads((folder / "metrics.json").read_text()) | changed
    left = {name: value for name, value in data.items() if value != "left out"}
    (folder / "metrics.json").write_text(json.dumps(left))


@pytest.fixture
def run(tmp_path: Path) -> Run:
    (tmp_path / "predictions").mkdir()
    return Run("ste-2", tmp_path, {}, RESULT, MASK, None)


def every_reader(run: Run) -> dict[Path, Callable[[], object]]:
    folder = run.folder
    return {
        folder / "metrics.json": lambda: RunResult.load(folder),
        folder / "importance.json": lambda: load_importances(folder / "importance.json"),
        folder / "seconds.json": lambda: scoring_seconds(folder / "seconds.json"),
        folder / "history.json": lambda: SelectionHistory.load(folder / "history.json"),
        folder / "predictions" / "dev.json": lambda: run.predictions("dev"),
    }


@pytest.mark.parametrize("text", NO_JSON.values(), ids=NO_JSON)
def test_what_is_no_json_of_ours_is_one_sentence(text: str, run: Run) -> None:
    for path, read in every_reader(run).items():
        if path.name == "dev.json" and text == "[]":
            continue  # predictions of no example
        path.write_text(text)
        with pytest.raises(HeadcountError) as told:
            read()
        assert len(str(told.value)) < 600 and "\n" not in str(told.value)
        assert path.read_text() == text


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no such files")
def test_missing_files_folders_and_pipes_are_told(run: Run) -> None:
    for path, read in every_reader(run).items():
        for make in (lambda _: None, Path.mkdir, os.mkfifo, lambda p: p.symlink_to("/dev/zero")):
            make(path)
            with pytest.raises(HeadcountError, match=r"there is no file|cannot be read: it is a"):
                read()
            if path.is_dir():
                path.rmdir()
            else:
                path.unlink(missing_ok=True)


def test_bytes_that_are_no_text_are_told(run: Run) -> None:
    for path, read in every_reader(run).items():
        path.write_bytes(b'{"format": "\xff"}')
        with pytest.raises(HeadcountError, match="can't decode byte 0xff"):
            read()


def test_a_result_is_read_as_it_was_written(tmp_path: Path) -> None:
    write_result(tmp_path)
    assert RunResult.load(tmp_path) == RESULT
    assert repr(RunResult.load(tmp_path)) == repr(RESULT)  # a count stays a whole number
    write_result(tmp_path, shared_by="left out", before=None)  # before several K had one training
    assert RunResult.load(tmp_path).shared_by == 1
    diverged = {"dev": {"accuracy": float("inf"), "loss": float("nan")}}
    write_result(tmp_path, scores=diverged)
    assert RunResult.load(tmp_path).scores["dev"]["accuracy"] == float("inf")


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"format": "headcount run 0"}, "another format"),
        ({"method": 3}, "'method' is 3, expected a text"),
        ({"metric": "left out"}, "it has no 'metric'"),
        ({"metric": "bleu"}, "no signature or no bleu of dev"),
        ({"signatures": {}}, "no signature"),
        ({"before": {}}, "no accuracy of dev"),
        ({"before": "left out"}, "it has no 'before'"),
        ({"greater_is_better": 1}, "is 1, expected true or false"),
        ({"scores": []}, r"'scores' is \[\], expected names with values"),
        ({"scores": {"dev": []}}, r"'dev' is \[\], expected"),
        ({"scores": {"dev": {"accuracy": "0.5"}}}, "'accuracy' is '0.5', expected a number"),
        ({"scores": {"dev": {"accuracy": True}}}, "'accuracy' is True, expected a number"),
        ({"scores": {"dev": {"accuracy": 10**400}}}, "'accuracy' is 1000.*, expected a number"),
        ({"signatures": {"dev": None}}, "the signature of dev is None, expected a text"),
        ({"heads": None}, "'heads' is None"),
        ({"heads": {"before": 4}}, "it has no 'after'"),
        ({"heads": {"before": 0, "after": 0}}, "'heads' is 0 before and 0 after"),
        ({"bytes": {"before": float("inf"), "after": 1}}, "'before' is inf, expected a finite"),
        ({"difference": None}, "'difference' is None"),
        ({"seconds": {"training": "long"}}, "'training' is 'long'"),
        ({"seconds": [1]}, r"'seconds' is \[1\]"),
        ({"shared_by": 0}, "'shared_by' is 0, expected at least 1"),
        ({"shared_by": 1.5}, "'shared_by' is 1.5, expected a whole number"),
    ],
)
def test_a_result_with_a_wrong_entry_is_refused(
    changed: dict[str, Any], says: str, tmp_path: Path
) -> None:
    write_result(tmp_path, **changed)
    with pytest.raises(HeadcountError, match=f"no readable metrics.json: .*{says}.*; give"):
        RunResult.load(tmp_path)


def test_importances_are_read_as_they_were_written(tmp_path: Path) -> None:
    save_importances(tmp_path / "i.json", 'a "method"', MASK, [0.5, float("nan"), 2, -1], 3.5)
    method, scores = load_importances(tmp_path / "i.json")
    assert method == 'a "method"'
    assert [str(score) for score in scores] == ["0.5", "nan", "2.0", "-1.0"]
    assert scoring_seconds(tmp_path / "i.json") == 3.5
    with pytest.raises(HeadcountError, match="importances of 1 heads, but the mask is of 4"):
        save_importances(tmp_path / "i.json", "ste", MASK, [1.0])


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"heads": {}}, "'heads' is {}, expected a list"),
        ({"heads": []}, "it has no heads"),
        ({"heads": [3]}, "a head is 3, expected names with values"),
        ({"heads": [{"head": "encoder.0.0"}]}, "it has no 'importance'"),
        ({"heads": [{"importance": "0.5"}]}, "'importance' is '0.5', expected a number"),
        ({"heads": [{"importance": float("nan")}]}, "'importance' is nan, expected a finite"),
        ({"heads": [{"importance": float("inf")}]}, "'importance' is inf, expected a finite"),
        ({"heads": [{"importance": 10**400}]}, "'importance' is 1000"),
        ({"method": None}, "'method' is None, expected a text"),
        ({"seconds": "3"}, "'seconds' is '3', expected a number"),
        ({"seconds": float("inf")}, "'seconds' is inf"),
        ({"format": "headcount run 1"}, "another format"),
    ],
)
def test_importances_with_a_wrong_entry_are_refused(
    changed: dict[str, Any], says: str, tmp_path: Path
) -> None:
    path = tmp_path / "importance.json"
    save_importances(path, "ste", MASK, [1.0, 2.0, 3.0, 4.0])
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))
    for read in (load_importances, scoring_seconds):
        with pytest.raises(HeadcountError, match=f"cannot read importances .*{says}.*; give"):
            read(path)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"selections": {}}, "'selections' is {}, expected a list"),
        ({"selections": [None]}, "a row is None"),
        ({"selections": [{"step": "1", "heads": []}]}, "'step' is '1', expected a whole number"),
        ({"selections": [{"step": 1.5, "heads": []}]}, "'step' is 1.5"),
        ({"selections": [{"step": 1, "heads": "123"}]}, "'heads' is '123', expected a list"),
        (
            {"selections": [{"step": 1, "heads": ["a"]}]},
            "a head of step 1 is 'a', expected",
        ),
        ({"selections": [{"step": 1, "heads": [-1]}]}, "a head of step 1 is -1, expected"),
        ({"selections": [{"step": 1, "heads": [], "temperature": "hot"}]}, "temperature of step 1"),
        ({"metrics": {}}, "'metrics' is {}, expected a list"),
        ({"metrics": [{"step": 1}]}, "it has no 'value'"),
        ({"metrics": [{"step": 1, "value": 10**400}]}, "'value' is 1000"),
        ({"format": "another"}, "another format"),
    ],
)
def test_a_history_with_a_wrong_entry_is_refused(
    changed: dict[str, Any], says: str, tmp_path: Path
) -> None:
    path, history = tmp_path / "history.json", SelectionHistory()
    history.record(0, MASK, 2.0)
    history.save(path)
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))
    with pytest.raises(HeadcountError, match=f"cannot read a selection history .*{says}.*; give"):
        SelectionHistory.load(path)


@pytest.mark.parametrize(
    "rows",
    [{}, "text", [3], [{}], [{"prediction": "a"}], [{"prediction": None, "reference": "a"}],
     [{"prediction": ["a"], "reference": "a"}], [{"prediction": 10**400, "reference": 1}]],
)  # fmt: skip
def test_predictions_that_are_none_are_refused(rows: Any, run: Run) -> None:
    (run.folder / "predictions" / "dev.json").write_text(json.dumps(rows))
    with pytest.raises(HeadcountError, match=r"run ste-2 has no readable predictions of dev \("):
        run.predictions("dev")


def test_predictions_are_texts_or_numbers(run: Run) -> None:
    rows = [{"prediction": "a", "reference": "b"}, {"prediction": 1.5, "reference": None}]
    (run.folder / "predictions" / "dev.json").write_text(json.dumps(rows))
    found = run.predictions("dev")
    assert (found.predicted, found.references) == (("a", 1.5), ("b", None))


def test_entries_are_of_their_exact_kind(tmp_path: Path) -> None:
    assert entry({"a": 3}, "a", float) == 3.0
    assert checked(True, bool, "it") is True
    wrong = [(True, int), (1, bool), (1.0, int), (True, float), (None, str), (2**63, int)]
    for value, kind in [*wrong, (10**400, float)]:
        with pytest.raises(ValueError, match=r"it is .*, expected"):
            checked(value, kind, "it")
    assert parse_json(r'"\ud83d\ude00"') == "😀"
    (tmp_path / "a.json").write_text("[1, 2]")
    assert read_json(tmp_path / "a.json") == [1, 2]
