"""Methods: each is made by its name and settings, and wrong settings are told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headcount import Countdown, HardConcrete, HeadcountError, JointDSP, Michel, find_heads
from headcount.loading.folder import load_model
from headcount.pruners.handover import AT_ONCE, OPERATING
from headcount.runs.methods import METHODS, countdown_of, find_method


@pytest.mark.parametrize("name", METHODS)
def test_every_method_is_made_by_its_name(name: str) -> None:
    pruner = find_method(name).make(2, {}, seed=3)
    assert pruner.name == name
    assert pruner.seed == 3


def test_settings_of_dsp_change_its_preset() -> None:
    settings = {"preset": "paper-bert", "cooldown": 100, "clamp": True, "min_per_block": 1}
    pruner = find_method("joint-dsp").make(12, settings, seed=0)
    assert isinstance(pruner, JointDSP)
    assert pruner.settings.annealing.start == 1000.0
    assert pruner.settings.annealing.cooldown == 100
    assert pruner.settings.clamp
    assert pruner.scope.min_per_block == 1


@pytest.mark.parametrize("start", [2.0, 0.5])
def test_dsp_without_annealing_stays_as_it_begins(start: float, encoder: Path) -> None:
    given = {"annealing": False} | ({} if start == 2.0 else {"start_temperature": start})
    pruner = find_method("joint-dsp").make(2, given, seed=0)
    assert isinstance(pruner, JointDSP)
    pruner.bind(find_heads(load_model(str(encoder))))
    spreads = []
    for step in (0, 50, 99):
        pruner.begin_step(step, 100)
        assert pruner.temperature == start
        spreads.append(float(pruner.logits().detach().std()))
    assert spreads == pytest.approx([1.0, 1.0, 1.0])  # nor does the noise lose weight


def test_the_penalty_may_be_called_by_its_letter() -> None:
    pruner = find_method("hard-concrete").make(None, {"lambda": 0.01}, seed=0)
    assert isinstance(pruner, HardConcrete)
    assert pruner.penalty_weight == 0.01
    assert pruner.open_count


def test_settings_of_michel_are_its_own() -> None:
    pruner = find_method("michel").make(12, {"step": 0.1, "normalise": False}, seed=0)
    assert isinstance(pruner, Michel)
    assert pruner.step == 0.1
    assert not pruner.normalise


def test_a_model_that_is_fine_tuned_hands_over_at_once() -> None:
    method = find_method("handover")
    made = [method.make(2, {}, seed=0), method.make(2, {}, seed=0, warm=True)]
    given = method.make(2, {"countdown": [0.1, 0.2, 1]}, seed=0, warm=True)
    several = method.make(2, {"operations": 2}, seed=0, warm=True)
    assert countdown_of(several) == OPERATING
    assert [countdown_of(p) for p in (*made, given)] == [OPERATING, AT_ONCE, Countdown(0.1, 0.2, 1)]


@pytest.mark.parametrize(
    ("name", "keep", "settings", "said"),
    [
        ("joint-dsp", 12, {"preset": "papr"}, "no preset 'papr'"),
        ("joint-dsp", 12, {"temperature": 1}, "has no setting temperature; it has .*cooldown"),
        ("joint-dsp", 12, {"annealing": "no"}, "annealing of joint-dsp is 'no', expected true"),
        ("joint-dsp", 12, {"annealing": False, "cooldown": 9}, "leave out end_temperature and coo"),
        ("joint-dsp", 12, {"shed": "maybe"}, "shed of joint-dsp is 'maybe', expected true"),
        ("joint-dsp", 12, {"start_temperature": "hot"}, "start_temperature of joint-dsp is 'hot',"),
        ("ste", 12, {"commit_at": "half"}, "commit_at of ste is 'half', expected a num"),
        ("pipelined-dsp", 12, {"freeze": ["a"]}, "pipelined-dsp has no setting freeze"),
        ("ste", 12, {"tau": 1}, "ste has no setting tau"),
        ("joint-dsp", 12, {"compensate": True}, "joint-dsp trains the model itself, .* michel"),
        ("michel", 12, {"compensate": "mean"}, "compensate of michel is 'mean', expected true"),
        ("random", 12, {"compensate": True, "compensate_sample": 0.5}, "number of examples"),
        ("michel", 12, {"compensate_sample": 9}, "nothing is compensated; give compensate too"),
        (
            "attrition",
            12,
            {"countdown": False},
            "attrition is a countdown, so it cannot be",
        ),
        ("attrition", 12, {"countdown": [0.5, 0.1]}, "countdown from 0.5 to 0.1 of the training"),
        ("joint-dsp", 12, {"first": "voita"}, "no first 'voita'; choose random or michel"),
        ("joint-dsp", 12, {"relaxation": "Poisson"}, "no relaxation 'Poisson'; choose gumbel or"),
        ("attrition", 12, {"shed": "flase"}, "shed of attrition is 'flase', expected true or fal"),
        ("ste", 12, {"countdown": "slow"}, "ste cannot be made with countdown: 'slow'"),
        ("joint-dsp", 12, {"scale": 5}, "scale is 5, expected two numbers"),
        ("joint-dsp", 12, {"clip": "model"}, "clip is 'model', expected a number, with-model"),
        ("handover", 12, {"countdown": False}, "handover is a countdown, so it cannot be"),
        ("handover", 12, {"fit": "no"}, "fit of handover is 'no', expected true or false"),
        ("handover", 12, {"halve": 2}, "halve of handover is 2, expected true or false"),
        ("handover", 12, {"operations": 0}, "operations of handover is 0, expected a whole number"),
        ("handover", 12, {"sample": 0.5}, "sample of handover is 0.5, expected a whole number"),
        ("surgeon", 12, {"halve": "yes"}, "halve of surgeon is 'yes', expected true or false"),
        ("michel", 12, {"step": 0}, "step of michel is 0"),
        ("michel", 12, {"commit_at": 0.4}, "michel has no setting commit_at"),
        ("ste", 12, {"min_per_block": 0.5}, "min_per_block is 0.5, expected a whole number"),
        ("random", 12, {"min_per_block": -1}, "min_per_block is -1, expected a whole number"),
        ("michel", 12, {"sample": "half"}, "sample of michel is 'half', expected a number"),
        ("michel", None, {}, "needs to know how many heads to keep"),
    ],
)
def test_wrong_settings_are_told(
    name: str, keep: int | None, settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(HeadcountError, match=said):
        find_method(name).make(keep, settings, seed=0)


def test_an_unknown_method_is_told() -> None:
    with pytest.raises(HeadcountError, match="no method 'dsp'; choose one of joint-dsp"):
        find_method("dsp")
