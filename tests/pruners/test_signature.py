"""What a result says about its pruner: words that are in published results, and stay."""

from __future__ import annotations

from typing import Any

import pytest

import headcount as hc
from headcount.pruners.methods import make_pruner
from tests.tiny import build


@pytest.mark.parametrize(
    ("method", "keep", "given", "said"),
    [
        ("ablation", 3, {}, ""),
        ("attrition", 3, {}, "countdown:0.05>0.55^3"),
        ("attrition", 3, {"commit_at": 0.6}, "commit:0.6|countdown:0.05>0.55^3"),
        ("fisher", 3, {}, "tuned"),
        ("fisher", 3, {"tune": False}, ""),
        ("fisher", 3, {"compensate": False}, ""),
        ("fixed", 3, {}, "layout:even"),
        ("flap", 3, {}, ""),
        ("flap", 3, {"squared": True}, "squared"),
        ("handover", 3, {}, "countdown:0.25>0.5^3|operations:1|anew|fit"),
        (
            "handover", 3, {"operations": 2, "measured": True, "fit": False},
            "countdown:0.25>0.5^3|operations:2|anew|measured",
        ),
        ("hard-concrete", 3, {}, "lambda:steered"),
        ("hard-concrete", None, {"lambda": 0.05}, "lambda:0.05"),
        ("joint-dsp", 3, {}, "tau:2>0.01"),
        ("joint-dsp", 3, {"preset": "paper-bert"}, "tau:1000>1e-08"),
        (
            "joint-dsp", 3, {"annealing": False, "shed": True, "countdown": True},
            "shed|countdown:0.05>0.55^3|tau:2>2",
        ),
        (
            "joint-dsp", (3, 2), {"commit_at": 0.6, "relaxation": "poisson", "hard": True},
            "trained:3+2|commit:0.6|hard|relaxation:poisson|tau:2>0.01",
        ),
        ("joint-dsp", (4, 2), {"first": "michel"}, "trained:4+2|first:michel|tau:2>0.01"),
        ("magnitude", 3, {}, ""),
        ("michel", 3, {"step": 1}, ""),
        ("osscar", 3, {}, ""),
        ("pipelined-dsp", 3, {"compensate": True}, "tau:2>0.01"),
        ("random", 3, {}, ""),
        ("ste", 3, {}, ""),
        ("ste", 3, {"countdown": [0.1, 0.5, 2]}, "countdown:0.1>0.5^2"),
        ("surgeon", 3, {}, "measured"),
        ("taylor", 3, {}, ""),
        ("taylor", 3, {"form": "vector"}, "form:vector"),
        ("unpruned", None, {}, ""),
        ("wanda", 3, {}, ""),
    ],
)  # fmt: skip
def test_the_signature_of_a_pruner(
    method: str, keep: Any, given: dict[str, Any], said: str
) -> None:
    pruner = make_pruner(method, keep, given)
    pruner.bind(hc.find_heads(build("bert")))
    assert "|".join(pruner.signature()) == said
