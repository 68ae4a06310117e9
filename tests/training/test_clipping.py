"""Clipping of the model's and the pruner's gradients by their common norm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import TrainerCallback

from headcount.pruners.dsp import JointDSP
from headcount.pruners.dsp_settings import PRESETS, DSPSettings
from tests.training.test_trainer import KEEP, assert_same, make_trainer

pytestmark = [
    pytest.mark.filterwarnings("ignore:'pin_memory' argument is set:UserWarning"),
]


def gradients(folder: Path, clip: Any, max_grad_norm: float) -> tuple[dict[str, Tensor], float]:
    """The gradients that the first optimizer step gets, and the norm that is logged."""
    pruner = JointDSP(KEEP, DSPSettings(balance=False, clip=clip))
    seen: dict[str, Tensor] = {}

    class Watch(TrainerCallback):
        def on_optimizer_step(self, *args: Any, model: Any = None, **kwargs: Any) -> None:
            named = [*model.named_parameters(), *pruner.named_parameters()]
            seen.update({name: p.grad.double().clone() for name, p in named if p.grad is not None})

    trainer = make_trainer(
        folder, pruner, callbacks=[Watch()], max_steps=1, logging_steps=1,
        max_grad_norm=max_grad_norm,
    )  # fmt: skip
    trainer.train()
    # Old versions log none where nothing is clipped.
    return seen, trainer.state.log_history[0].get("grad_norm", 0.0)


def norm(gradients: dict[str, Tensor]) -> float:
    return float(torch.cat([gradient.flatten() for gradient in gradients.values()]).norm())


def test_the_model_and_w_are_clipped_by_their_common_norm(tmp_path: Path) -> None:
    # Above the largest norm, where nothing is clipped.
    free, logged = gradients(tmp_path, "with-model", 1e6)
    assert norm(free) > norm({"w": free["w"]}) > 1e-3
    assert logged == pytest.approx(norm(free), rel=1e-5)
    largest = norm(free) / 4
    clipped, logged = gradients(tmp_path, "with-model", largest)
    assert logged == pytest.approx(norm(free), rel=1e-5)
    assert norm(clipped) == pytest.approx(largest, rel=1e-5)
    assert_same(clipped, {name: gradient / 4 for name, gradient in free.items()}, 1e-6)
    apart, _ = gradients(tmp_path, None, largest)
    torch.testing.assert_close(apart["w"], free["w"], rtol=0, atol=1e-9)


def test_a_large_gradient_of_w_shrinks_the_models_step(tmp_path: Path) -> None:
    free, _ = gradients(tmp_path, "with-model", 1e6)
    own = norm({"w": free["w"]})
    model = norm({name: gradient for name, gradient in free.items() if name != "w"})
    # The model alone would not be clipped.
    clipped, _ = gradients(tmp_path, "with-model", model)
    ratio = norm({name: gradient for name, gradient in clipped.items() if name != "w"}) / model
    assert ratio == pytest.approx(model / (model**2 + own**2) ** 0.5, rel=1e-5)
    assert ratio < 1


def test_without_a_largest_norm_nothing_is_clipped(tmp_path: Path) -> None:
    free, _ = gradients(tmp_path, "with-model", 1e6)
    assert_same(gradients(tmp_path, "with-model", 0.0)[0], free)


def test_the_papers_bert_clips_so() -> None:
    assert PRESETS["paper-bert"].clip == "with-model"
