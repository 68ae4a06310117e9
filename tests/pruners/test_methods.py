"""Methods: each is made by its name and settings, and wrong settings are told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headcount import (
    STE,
    Countdown,
    Handover,
    HardConcrete,
    HeadcountError,
    JointDSP,
    Michel,
    find_heads,
)
from headcount.loading.folder import load_model
from headcount.pruners.handover import AT_ONCE, OPERATING
from headcount.pruners.methods import METHODS, find_pruner, make_pruner


@pytest.mark.parametrize("name", METHODS)
def test_every_method_is_made_by_its_name(name: str) -> None:
    pruner = make_pruner(name, 2, {}, seed=3)
    assert pruner.name == name
    assert pruner.seed == 3


def test_settings_of_dsp_change_its_preset() -> None:
    settings = {"preset": "paper-bert", "cooldown": 100, "clamp": True, "min_per_block": 1}
    pruner = make_pruner("joint-dsp", 12, settings, seed=0)
    assert isinstance(pruner, JointDSP)
    assert pruner.settings.annealing.start == 1000.0
    assert pruner.settings.annealing.cooldown == 100
    assert pruner.settings.clamp
    assert pruner.scope.min_per_block == 1


@pytest.mark.parametrize(
    ("given", "held"),
    [
        ({"annealing": False}, 2.0),
        ({"annealing": "start", "start_temperature": 0.5}, 0.5),
        # As the authors' code does without annealing: Fig. 7b.
        ({"annealing": "end"}, 0.01),
        ({"annealing": "end", "preset": "paper-bert"}, 1e-8),
        ({"annealing": "end", "end_temperature": 0.1}, 0.1),
    ],
)
def test_dsp_without_annealing_holds_a_temperature(
    given: dict[str, Any], held: float, encoder: Path
) -> None:
    pruner = make_pruner("joint-dsp", 2, given, seed=0)
    assert isinstance(pruner, JointDSP)
    pruner.bind(find_heads(load_model(str(encoder))))
    spreads = []
    for step in (0, 50, 99):
        pruner.begin_step(step, 100)
        assert pruner.temperature == held
        spreads.append(float(pruner.logits().detach().std()))
    assert spreads == pytest.approx([spreads[0]] * 3)  # nor does the noise lose weight


def test_the_penalty_may_be_called_by_its_letter() -> None:
    pruner = make_pruner("hard-concrete", None, {"lambda": 0.01}, seed=0)
    assert isinstance(pruner, HardConcrete)
    assert pruner.penalty_weight == 0.01
    assert pruner.open_count


def test_settings_of_michel_are_its_own() -> None:
    pruner = make_pruner("michel", 12, {"step": 0.1, "normalise": False}, seed=0)
    assert isinstance(pruner, Michel)
    assert pruner.settings.step == 0.1
    assert not pruner.settings.normalise


def test_a_model_that_is_fine_tuned_hands_over_at_once() -> None:
    def countdown(given: dict[str, Any], warm: bool = True) -> Countdown:
        pruner = make_pruner("handover", 2, given, warm=warm)
        assert isinstance(pruner, Handover)
        return pruner.settings.countdown

    assert countdown({"operations": 2}) == OPERATING
    assert countdown({}, warm=False) == OPERATING
    assert countdown({}) == AT_ONCE
    assert countdown({"countdown": [0.1, 0.2, 1]}) == Countdown(0.1, 0.2, 1)


def test_the_rate_after_a_fine_tuning_is_the_trainings() -> None:
    assert make_pruner("handover", 2, {}, rate=3e-5).late_rate == 3e-5
    assert make_pruner("ste", 2, {}, rate=3e-5).late_rate is None


def test_a_countdown_can_be_switched_on_and_off() -> None:
    for said, expected in (
        (True, Countdown()),
        (False, None),
        ([0.1, 0.5, 2], Countdown(0.1, 0.5, 2)),
    ):
        pruner = make_pruner("ste", 2, {"countdown": said})
        assert isinstance(pruner, STE)
        assert pruner.settings.countdown == expected


@pytest.mark.parametrize(
    ("name", "keep", "settings", "said"),
    [
        (
            "joint-dsp",
            12,
            {"preset": "papr"},
            "preset of joint-dsp is 'papr', expected",
        ),
        ("joint-dsp", 12, {"temperature": 1}, "has no setting temperature; it has .*cooldown"),
        ("joint-dsp", 12, {"annealing": "no"}, "annealing of joint-dsp is 'no', expected true"),
        ("joint-dsp", 12, {"annealing": False, "cooldown": 9}, "leave out the other one and cool"),
        ("joint-dsp", 12, {"shed": "maybe"}, "shed of joint-dsp is 'maybe', expected true"),
        ("joint-dsp", 12, {"start_temperature": "hot"}, "start_temperature of joint-dsp is 'hot',"),
        ("ste", 12, {"commit_at": "half"}, "commit_at of ste is 'half', expected a num"),
        ("pipelined-dsp", 12, {"freeze": ["a"]}, "pipelined-dsp has no setting freeze"),
        ("ste", 12, {"tau": 1}, "ste has no setting tau"),
        ("joint-dsp", 12, {"compensate": True}, "joint-dsp trains the model itself, .* michel"),
        ("michel", 12, {"compensate": "mean"}, "compensate of michel is 'mean', expected true"),
        (
            "random",
            12,
            {"compensate": True, "compensate_sample": 0.5},
            "compensate_sample of ran",
        ),
        ("michel", 12, {"compensate_sample": 9}, "nothing is compensated; give compensate too"),
        (
            "attrition",
            12,
            {"countdown": False},
            "countdown of attrition is False, expected a countdown",
        ),
        ("attrition", 12, {"countdown": [0.5, 0.1]}, "countdown from 0.5 to 0.1 of the training"),
        (
            "joint-dsp",
            12,
            {"first": "voita"},
            "is 'voita', expected random or michel",
        ),
        (
            "joint-dsp",
            12,
            {"relaxation": "Poisson"},
            "is 'Poisson', expected gumbel or",
        ),
        ("attrition", 12, {"shed": "flase"}, "shed of attrition is 'flase', expected true or fal"),
        ("ste", 12, {"countdown": "slow"}, "countdown of ste is 'slow', expected a countdown"),
        ("joint-dsp", 12, {"scale": 5}, "scale of joint-dsp is 5, expected a list of 2 numbers"),
        (
            "joint-dsp",
            12,
            {"clip": "model"},
            "is 'model', expected a number or with-model",
        ),
        (
            "handover",
            12,
            {"countdown": False},
            "countdown of handover is False, expected",
        ),
        ("handover", 12, {"fit": "no"}, "fit of handover is 'no', expected true or false"),
        ("handover", 12, {"measured": 2}, "measured of handover is 2, expected true or false"),
        ("handover", 12, {"operations": 0}, "operations of handover is 0, expected a whole number"),
        ("handover", 12, {"sample": 0.5}, "sample of handover is 0.5, expected a whole number"),
        (
            "surgeon",
            12,
            {"measured": "yes"},
            "measured of surgeon is 'yes', expected true or false",
        ),
        ("michel", 12, {"step": 0}, "step of michel is 0"),
        ("michel", 12, {"commit_at": 0.4}, "michel has no setting commit_at"),
        ("ste", 12, {"min_per_block": 0.5}, "min_per_block of ste is 0.5, expected a whole number"),
        (
            "random",
            12,
            {"min_per_block": -1},
            "min_per_block of random is -1, expected",
        ),
        ("michel", 12, {"sample": "half"}, "sample of michel is 'half', expected a number"),
        ("michel", None, {}, "needs to know how many heads to keep"),
    ],
)
def test_wrong_settings_are_told(
    name: str, keep: int | None, settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(HeadcountError, match=said):
        make_pruner(name, keep, settings, seed=0)


def test_an_unknown_method_is_told() -> None:
    with pytest.raises(HeadcountError, match="no method 'dsp'; choose one of joint-dsp"):
        find_pruner("dsp")
