"""The recipes beside the code: each can be read, and holds what the papers' authors did."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headcount.pruners.methods import make_pruner
from headcount.runs.recipe import Recipe

RECIPES = Path(__file__).parent.parent.parent / "recipes"


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_recipe_has_settings_that_its_methods_take(path: Path) -> None:
    recipe = Recipe.read(path)
    for method, given in recipe.values["settings"].items():
        assert make_pruner(method, recipe.values["keep"], given).name == method


def made(recipe: str, method: str) -> Any:
    given = Recipe.read(RECIPES / f"{recipe}.yaml").values["settings"]
    return make_pruner(method, 12, given[method])


def test_the_encoder_decoder_is_never_clipped_and_w_has_a_constant_rate() -> None:
    for method in ("joint-dsp", "pipelined-dsp", "ste", "hard-concrete"):
        assert made("encdec-iwslt14", method).clip is None, method
    for method in ("joint-dsp", "pipelined-dsp", "ste"):
        pruner = made("encdec-iwslt14", method)
        assert not pruner.decays
        assert pruner.settings.learning_rate == 0.2
    # The authors build this trainer without the rate of w: log α has the model's, and its schedule.
    assert made("encdec-iwslt14", "hard-concrete").decays


def test_the_encoder_clips_model_and_gates_together_and_both_rates_fall() -> None:
    for method in ("joint-dsp", "pipelined-dsp", "ste", "hard-concrete"):
        pruner = made("bert-mnli", method)
        assert pruner.clip == "with-model", method
        assert pruner.decays
