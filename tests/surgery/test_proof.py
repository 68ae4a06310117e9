"""prove_removal: a number for a model that is understood, and a sentence for one that is not."""

from __future__ import annotations

import pytest
import torch

import headcount as hc
from tests.surgery.test_trial import ScaledHeads, llama_with
from tests.tiny import build

INPUTS = {"input_ids": torch.arange(6)[None]}


def test_a_model_that_is_cut_exactly_is_proved_and_left_as_it_is() -> None:
    model = build("bert")
    heads = len(hc.find_heads(model))
    assert hc.prove_removal(model, INPUTS) < 1e-5
    assert len(hc.find_heads(model)) == heads


def test_rounding_of_large_outputs_is_no_difference() -> None:
    model = build("bert")
    *_, last = [module for module in model.modules() if isinstance(module, torch.nn.LayerNorm)]
    with torch.no_grad():
        last.weight.mul_(1e4)
    assert 1e-5 < hc.prove_removal(model, INPUTS) < 1e-1


def test_a_model_that_is_cut_wrongly_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    model = llama_with(ScaledHeads, monkeypatch)
    monkeypatch.setenv("HEADCOUNT_PROBE", "0")  # the trial would refuse it before
    last = hc.HeadMask.from_names(hc.find_heads(model), ["decoder.0.3", "decoder.1.3"])
    with pytest.raises(hc.HeadcountError, match="the cut model differs from the masked one by"):
        hc.prove_removal(model, INPUTS, last)
