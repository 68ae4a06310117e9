"""Weights that accelerate keeps elsewhere cannot be cut, and are refused whole."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from accelerate import cpu_offload, disk_offload

import headcount as hc
from headcount import HeadcountError
from tests.tiny import build, family_named, run


@pytest.mark.parametrize("where", ["memory", "disk"])
def test_offloaded_models_are_refused_and_still_run(where: str, tmp_path: Path) -> None:
    model = build("llama")
    expected = run(model, family_named("llama").inputs())
    mask = hc.HeadMask.random(hc.find_heads(model), keep=3, seed=0)
    if where == "memory":
        cpu_offload(model, torch.device("cpu"))
    else:
        disk_offload(model, str(tmp_path), torch.device("cpu"))
    with pytest.raises(HeadcountError, match=r"decoder\.0 .* are offloaded .* load the model with"):
        hc.remove_heads(model, mask)
    found = run(model, family_named("llama").inputs())
    assert all(torch.equal(expected[name], found[name]) for name in expected)
