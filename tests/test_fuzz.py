"""Files with anything in them: a right result or one sentence, quickly, and nothing is written.

The cases are drawn with a seed. Each begins with a file that is right, and has one to four values
replaced, removed or repeated. Some have their text damaged too.
"""

from __future__ import annotations

import copy
import json
import math
import random
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

import headcount as hc
from headcount import HeadcountError, HeadMap, HeadMask
from headcount.cli.options import refuse_wrong_setting, run_settings
from headcount.loading.checkpoint import KeptHeads
from headcount.study.plan import StudySettings
from tests.tiny import build, mask_for

ODD: list[Any] = [
    None, True, False, 0, 1, -1, 4, 10**12, 10**30, 10**400, 0.5, 1e300, math.inf, -math.inf,
    math.nan, "", "x", "1", "1e5", "inf", "\x00", "é", "\ud800", "y" * 300, [], [[]], [0, 0], {},
    {"": {}}, {"0": [1, 9]}, {"method": "michel"}, [None], "unpruned", "handover", "michel",
]  # fmt: skip
SIGNS = [
    *"{}[]:,\"'&*!|>%@`#-? \n\t\\0",
    "!!int ",
    "&a ",
    "*a",
    "<<: ",
    "\udcff",
    "9" * 50,
    "[" * 99,
]


def mutated(value: Any, draw: random.Random) -> Any:
    """The same with some values, at any depth, replaced, removed or repeated."""
    value = copy.deepcopy(value)
    for _ in range(draw.choice([1, 1, 2, 4])):
        place = value
        while isinstance(place, dict | list) and place:
            keys = list(place) if isinstance(place, dict) else range(len(place))
            key = draw.choice(keys)
            if draw.random() < 0.2 or not isinstance(place[key], dict | list) or not place[key]:
                _change(place, key, draw)
                break
            place = place[key]
    return value


def _change(place: Any, key: Any, draw: random.Random) -> None:
    what = draw.random()
    if what < 0.7:
        place[key] = copy.deepcopy(draw.choice(ODD))
    elif what < 0.85:
        del place[key]
    elif isinstance(place, list):
        place.append(copy.deepcopy(place[key]))
    else:
        place[draw.choice(["", "x", 1, None, "keep", "seeds", "method"])] = place[key]


def damaged(text: str, draw: random.Random) -> bytes:
    """The text with some signs replaced, or cut off, as bytes that may not be UTF-8."""
    for _ in range(draw.choice([0, 0, 0, 1, 3])):
        at = draw.randrange(len(text) + 1)
        text = text[:at] + draw.choice(SIGNS) + text[at + draw.choice([0, 1, 8]) :]
    if draw.random() < 0.05:
        text = text[: draw.randrange(len(text) + 1)]
    return text.encode("utf-8", "surrogateescape" if "\ud800" not in text else "replace")


@cache
def heads() -> HeadMap:
    return hc.find_heads(build("bert"))


@cache
def mask() -> HeadMask:
    return mask_for(build("bert"), "half")


RECIPE: dict[str, Any] = {
    "model": "bert", "task": "mnli", "data": "DIR", "method": "joint-dsp", "keep": [4, 2],
    "seed": 1, "training": {
        "epochs": 3, "learning_rate": 2e-5, "warmup": 0.1, "adam_beta2": 0.98, "distil": 0.5,
        "scheduler": "linear", "warm_start": True, "report_to": ["tensorboard"], "max_steps": 3,
    },
    "examples": {"text": ["premise", "hypothesis"], "labels": ["a", "b"], "options": {"a": 1}},
    "settings": {
        "joint-dsp": {
            "preset": "paper-bert", "annealing": True, "cooldown": 0.5, "scale": [1, 2],
            "countdown": [0, 0.5, 3], "kinds": ["encoder"], "layers": [0], "clip": "with-model",
        },
        "handover": {"freeze": "bert.*"}, "michel": {"step": 1, "compensate": True},
    },
}  # fmt: skip
STUDY: dict[str, Any] = {
    **{key: RECIPE[key] for key in ("model", "task", "data", "training", "examples")},
    "methods": ["unpruned", "michel", "mine", "l0"], "keep": [4, 2], "seeds": [0, 1],
    "settings": {
        "michel": {"step": 1, "seeds": {4: [0]}, "training": {"epochs": 1}},
        "mine": {"method": "joint-dsp", "one_run": True, "keep": [4, 2], "seeds": [0]},
        "l0": {"method": "hard-concrete", "lambda": 0.1, "keep": "own"},
    },
    "speed": True,
}  # fmt: skip


def read_mask(folder: Path, draw: random.Random) -> None:
    data = mutated(mask().to_dict(), draw)
    (folder / "mask.json").write_bytes(damaged(json.dumps(data), draw))
    read = HeadMask.load(folder / "mask.json")
    assert HeadMask.from_dict(read.to_dict()) == read


def read_entry(folder: Path, draw: random.Random) -> None:
    entries = [
        {"quant_method": "headcount", "mask": mask().to_dict()},
        {"quant_method": "headcount", "pruned_heads": {"0": [0, 3], "2": [1]}},
    ]
    entry = mutated(draw.choice(entries), draw)
    kept = KeptHeads(**{str(key): value for key, value in entry.items()}).for_model(heads())
    assert kept.layout == heads().layout


def read_recipe(folder: Path, draw: random.Random) -> None:
    file = folder / "recipe.yaml"
    file.write_bytes(damaged(_written(mutated(RECIPE, draw)), draw))
    settings = run_settings({"recipe": file})
    refuse_wrong_setting(settings, file)
    json.dumps(settings.to_dict()).encode("utf-8")


def read_study(folder: Path, draw: random.Random) -> None:
    file = folder / "study.yaml"
    file.write_bytes(damaged(_written(mutated(STUDY, draw)), draw))
    for name, run in StudySettings.read(file).runs().items():
        assert len(name.encode("utf-8")) < 255
        json.dumps(run.to_dict())


def _written(data: Any) -> str:
    return json.dumps(data) if data == {} else yaml.safe_dump(data, width=80, sort_keys=False)


READERS = [read_mask, read_entry, read_recipe, read_study]


def fuzz(read: Callable[[Path, random.Random], None], folder: Path, cases: range) -> None:
    right = 0
    for case in cases:
        began = time.monotonic()
        try:
            read(folder, random.Random(case))
            right += 1
        except HeadcountError as error:
            assert str(error).isprintable() or "\n" not in str(error), case
        except Exception as error:
            raise AssertionError(f"case {case} of {read.__name__}: {error!r}") from error
        assert time.monotonic() - began < 5, case
        assert len(list(folder.iterdir())) <= 1, case
    assert 0 < right < len(cases)


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """A recipe without a task asks the hub what its model is, and waits where there is no net."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


@pytest.mark.parametrize(
    ("read", "cases"),
    [(read_mask, 1500), (read_entry, 3000), (read_recipe, 250), (read_study, 200)],
)
def test_a_file_is_right_or_refused(
    read: Callable[[Path, random.Random], None], cases: int, tmp_path: Path
) -> None:
    fuzz(read, tmp_path, range(cases))


@pytest.mark.slow
@pytest.mark.parametrize("read", READERS)
def test_a_file_is_right_or_refused_at_length(
    read: Callable[[Path, random.Random], None], tmp_path: Path
) -> None:
    fuzz(read, tmp_path, range(10_000, 14_000))
