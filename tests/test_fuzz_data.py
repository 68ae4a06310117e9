"""Damaged data and files of results: a sentence or a right answer, soon, and nothing is changed."""

from __future__ import annotations

import gzip
import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from headcount import HeadcountError, HeadMask
from headcount.runs.output import load_importances, save_importances, scoring_seconds
from headcount.runs.result import RunResult, Sides
from headcount.study.read import read_study
from headcount.study.run_record import Run
from headcount.tasks.base import DataSettings
from headcount.tasks.registry import make_task
from headcount.training.history import SelectionHistory
from tests.tasks.tiny_text import write_table

MASK = HeadMask("bert", (("encoder.0", 4),), frozenset({0, 2}))
LONGEST = 5.0  # seconds that a reader may take on a busy machine
PIECES = (
    b"\x00", b"\xff", b"\xef\xbb\xbf", b"\x1f\x8b", b"NaN", b"-Infinity", b"1e999", b"9" * 400,
    b"9" * 5000, rb"\ud800", rb"\u0000", b"null", b"true", b"[]", b"{}", b"[" * 3000,
    b'{"a":' * 3000, b'"', b"'", b",", b"\t", b"\n", b"\r", b":", b"-", b"\\",
    "\u2028".encode(), b"x" * 100_000,
)  # fmt: skip
VALUES = (
    None, True, -1, 0, 0.5, 10**400, -(10**30), float("nan"), float("inf"), "", "a", "\ud800",
    [], {}, [None], {"a": None}, [[[[]]]], ["a", 1],
)  # fmt: skip


def damaged(data: bytes, draw: random.Random) -> bytes:
    """The same with one to four mistakes in places that are drawn."""
    for _ in range(draw.randint(1, 4)):
        start = draw.randint(0, len(data))
        end = min(len(data), start + draw.choice((0, 1, 1, 8, 100)))
        flipped = bytes(byte ^ (1 << draw.randrange(8)) for byte in data[start:end])
        piece = draw.choice((b"", flipped, data[start:end] * 2, draw.choice(PIECES)))
        data = data[:start] + piece + data[end:]
        if draw.random() < 0.05:
            data = data[: draw.randint(0, len(data))]
    return data


def changed(data: bytes, draw: random.Random) -> bytes:
    """JSON that is whole, with another value, or none, in a place that is drawn."""
    content = json.loads(data)
    if draw.random() < 0.05:
        return json.dumps(draw.choice(VALUES)).encode()
    where = content
    while True:
        key = draw.choice(list(where) if isinstance(where, dict) else range(len(where)))
        inside = where[key]
        if not (isinstance(inside, dict | list) and inside and draw.random() < 0.7):
            break
        where = inside
    if draw.random() < 0.2:
        where.pop(key)
    else:
        where[key] = draw.choice(VALUES)
    return json.dumps(content).encode()


@dataclass(frozen=True)
class Target:
    """A file to damage, and who reads it: `read` also checks that the answer is right."""

    file: str
    write: Callable[[Path], object]
    read: Callable[[Path], object]
    is_json: bool = False


def write_tables(ending: str) -> Callable[[Path], object]:
    rows = {"text": [f"text {n}, “ö”" for n in range(12)], "label": [0, 1] * 6}

    def write(folder: Path) -> None:
        write_table(folder / f"train.{ending}", rows)
        write_table(folder / f"dev.{ending}", rows)

    return write


def write_lines(*names: str) -> Callable[[Path], object]:
    text = "".join(f"line {n} – ö\n" for n in range(9))

    def write(folder: Path) -> None:
        for name in names:
            data = text.encode()
            (folder / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)

    return write


def read_task(task: str, **settings: Any) -> Callable[[Path], object]:
    def read(folder: Path) -> None:
        made = make_task(task, DataSettings(str(folder), **settings))
        assert made.data_digest()
        for values in made.read_columns().values():
            for value in values:
                str(value).encode("utf-8")  # what was read can be written

    return read


def write_result(folder: Path) -> None:
    sides = Sides(4, 2)
    RunResult(
        "ste", "accuracy", True, {"dev": {"accuracy": 0.5}}, {"dev": {"accuracy": 0.75}},
        {"dev": "method:ste"}, sides, sides, sides, sides, None, 0.0, {"training": 60.0},
    ).save(folder)  # fmt: skip


def read_result(folder: Path) -> None:
    result = RunResult.load(folder)
    assert result.rows() and result.cost is not None and int(result.heads.after) >= 0
    json.dumps(result.scores).encode()


def write_importances(folder: Path) -> None:
    save_importances(folder / "i.json", "ste", MASK, [0.5, float("nan"), 2.0, -1.0], 3.0)


def read_importances(folder: Path) -> None:
    method, scores = load_importances(folder / "i.json")
    assert isinstance(method, str) and scores and {type(score) for score in scores} == {float}
    assert abs(scoring_seconds(folder / "i.json")) < float("inf")


def write_history(folder: Path) -> None:
    history = SelectionHistory()
    for step in range(3):
        history.record(step, MASK, 0.5)
        history.record_metric(step, 0.25)
    history.save(folder / "h.json")


def read_history(folder: Path) -> None:
    history = SelectionHistory.load(folder / "h.json")
    assert {type(head) for row in history.selections for head in row.heads} <= {int}
    assert {type(value) for _, value in history.metrics} <= {float}


def write_predictions(folder: Path) -> None:
    rows = [{"prediction": "a", "reference": "b"}, {"prediction": 1.5, "reference": None}] * 3
    (folder / "predictions").mkdir()
    (folder / "predictions" / "dev.json").write_text(json.dumps(rows))


def read_predictions(folder: Path) -> None:
    run: Any = Run("run", folder, {}, None, None, None)  # type: ignore[arg-type]
    found = run.predictions("dev")
    assert len(found.predicted) == len(found.references)


def write_study(folder: Path) -> None:
    run = folder / "runs" / "ste-2-seed0"
    run.mkdir(parents=True)
    write_result(run)
    save_importances(run / "importance.json", "ste", MASK, [0.5, 1.0, 2.0, -1.0])
    MASK.save(run / "mask.json")
    settings = {"model": "bert", "task": "mnli", "method": "ste", "keep": 2, "seed": 0}
    (run / "settings.json").write_text(json.dumps(settings | {"settings": {"lambda": None}}))
    (folder / "results.csv").write_text(
        "model,task,method,keep,seed,split,metric,value,heads,parameters,seconds,signature\n"
        + "".join(f"bert,mnli,ste,2,{n},dev,accuracy,0.5,2,2,60.0,method:ste\n" for n in range(3))
    )


def study_of(folder: Path) -> None:
    study = read_study(folder)
    assert len(study.results) and list(study.comparisons())


RUN = "runs/ste-2-seed0/"
TARGETS = (
    *(
        Target(f"train.{ending}", write_tables(ending), read_task("classification"))
        for ending in ("csv", "tsv", "jsonl", "parquet", "csv.gz")
    ),
    Target("train.jsonl", write_tables("jsonl"), read_task("sst2", text=("text",))),
    Target(
        "val.de", write_lines("train.de", "train.en", "val.de", "val.en"),
        read_task("translation", source="de", target="en"),
    ),
    Target("train.txt.gz", write_lines("train.txt.gz", "dev.txt"), read_task("language-modelling")),
    Target("metrics.json", write_result, read_result, is_json=True),
    Target("i.json", write_importances, read_importances, is_json=True),
    Target("h.json", write_history, read_history, is_json=True),
    Target("predictions/dev.json", write_predictions, read_predictions, is_json=True),
    Target("results.csv", write_study, study_of),
    Target(f"{RUN}metrics.json", write_study, study_of, is_json=True),
    Target(f"{RUN}settings.json", write_study, study_of, is_json=True),
)  # fmt: skip


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def fuzz(target: Target, folder: Path, seeds: range) -> int:
    """How many damaged files were refused."""
    target.write(folder)
    path, refused = folder / target.file, 0
    whole = path.read_bytes()
    target.read(folder)
    for seed in seeds:
        draw = random.Random(seed)
        ways = (damaged, changed) if target.is_json else (damaged,)
        path.write_bytes(draw.choice(ways)(whole, draw))
        before, began = contents(folder), time.perf_counter()
        try:
            target.read(folder)
        except HeadcountError as error:
            refused += 1
            assert str(error), seed
        except Exception as error:
            error.add_note(f"seed {seed} of {target.file}")
            raise
        assert time.perf_counter() - began < LONGEST, seed
        assert contents(folder) == before, seed
    return refused


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.file)
def test_damage_is_told_or_does_not_matter(target: Target, tmp_path: Path) -> None:
    refused = fuzz(target, tmp_path, range(40))
    assert refused or target.file.startswith(RUN)  # a study notes it and goes on


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.file)
def test_much_damage_is_told_or_does_not_matter(target: Target, tmp_path: Path) -> None:
    fuzz(target, tmp_path, range(1000, 4000))
