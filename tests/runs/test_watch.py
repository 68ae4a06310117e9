"""Evaluations in the middle of a pruning: they are true, and nothing else notices them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import transformers
from safetensors.torch import load_file

from headcount import HeadcountError
from headcount.runs.progress import Silent
from headcount.runs.prune import prune
from headcount.runs.recipe import Recipe, fill
from headcount.runs.result import RunResult
from headcount.runs.settings import RunSettings, TrainingSettings
from headcount.training.history import SelectionHistory

STEPS = 20
TRAINING = TrainingSettings(max_steps=STEPS, batch_size=16, learning_rate=1e-3, log_every=3)


@pytest.fixture(scope="module")
def settings(encoder: Path, tables: Path) -> RunSettings:
    """The encoder has dropout, so that a number drawn by an evaluation would be noticed."""
    return RunSettings(
        str(encoder), "classification", str(tables), "joint-dsp", 3, seed=1, training=TRAINING
    )


@pytest.fixture(scope="module")
def watched(
    settings: RunSettings, tmp_path_factory: pytest.TempPathFactory
) -> tuple[RunSettings, Path]:
    """A run that was evaluated every three steps."""
    settings = replace(settings, training=replace(TRAINING, evaluate_every=3))
    run = tmp_path_factory.mktemp("watched") / "run"
    prune(settings, run, speed=False)
    return settings, run


def history_of(run: Path) -> SelectionHistory:
    return SelectionHistory.load(run / "selection_history.json")


def test_a_watched_training_is_the_same_training(
    settings: RunSettings, watched: tuple[RunSettings, Path], tmp_path: Path
) -> None:
    prune(settings, tmp_path / "plain", speed=False)
    plain, seen = (load_file(run / "model.safetensors") for run in (tmp_path / "plain", watched[1]))
    assert plain.keys() == seen.keys()
    assert all((plain[name] == seen[name]).all() for name in plain)
    assert history_of(tmp_path / "plain").selections == history_of(watched[1]).selections
    assert history_of(tmp_path / "plain").metrics == []


def test_the_last_metric_is_that_of_the_cut_model(watched: tuple[RunSettings, Path]) -> None:
    history = history_of(watched[1])
    assert [step for step, _ in history.metrics] == [*range(0, STEPS, 3), STEPS]
    result = RunResult.load(watched[1])
    assert history.metrics[-1][1] == pytest.approx(result.scores["validation"]["accuracy"])
    temperatures = [selection.temperature for selection in history.selections]
    assert None not in temperatures
    assert temperatures[0] > temperatures[-1] > 0  # type: ignore[operator]


class Dying(Silent):
    """Ends the run in the middle of a training."""

    def advance(self, done: int, note: str = "", total: int | None = None) -> None:
        if done == 11:
            raise SystemError("the power is off")


@pytest.mark.skipif(
    transformers.__version__.startswith("5.0."),
    reason="transformers 5.0 writes LayerNorm weights of BERT under names it does not load again",
)
def test_a_resumed_run_keeps_what_was_seen(
    watched: tuple[RunSettings, Path], tmp_path: Path
) -> None:
    settings, whole = watched
    with pytest.raises(SystemError):
        prune(settings, tmp_path / "out", speed=False, progress=Dying())
    prune(settings, tmp_path / "out", resume=True, speed=False)
    assert history_of(tmp_path / "out") == history_of(whole)


def test_a_recipe_asks_for_it(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    for said in ("50", "0"):
        path.write_text(
            f"model: m\ntask: mnli\ndata: d\nkeep: 2\ntraining:\n  evaluate_every: {said}\n"
        )
        recipe = Recipe.read(path)
        if said == "50":
            assert fill(RunSettings, recipe, recipe.values).training.evaluate_every == 50
            continue
        with pytest.raises(HeadcountError, match="evaluate_every is 0, expected a whole number"):
            fill(RunSettings, recipe, recipe.values)
