"""Every module of a model gets its own mode back."""

from __future__ import annotations

import pytest
from torch import nn

from headcount.batch import evaluating


def test_modes_come_back_one_by_one_also_after_an_exception() -> None:
    model = nn.Sequential(nn.Dropout(), nn.Sequential(nn.Dropout(), nn.Linear(1, 1)))
    model.train()
    model[1].eval()
    before = [module.training for module in model.modules()]
    with pytest.raises(ValueError, match="a batch that is wrong"), evaluating(model):
        assert not any(module.training for module in model.modules())
        raise ValueError("a batch that is wrong")
    assert [module.training for module in model.modules()] == before
    assert True in before and False in before
