"""What an export costs, on tasks beyond classifying text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from headcount.deploy.cost import costs
from headcount.deploy.targets import fill, find_target
from headcount.runs.evaluate import open_trained
from headcount.runs.progress import Silent
from headcount.runs.settings import RunSettings
from headcount.tasks.registry import make_task
from tests.deploy.conftest import needs_onnx
from tests.runs.test_other_tasks import BRIEF, language_modelling, translation


def _made(settings: RunSettings) -> str:
    """The folder of a new model, which then passes for a trained one."""
    return make_task(settings.task, settings.data_settings()).model_folder(settings.model)


@needs_onnx
@pytest.mark.slow
@pytest.mark.parametrize("make", [language_modelling, translation])
def test_cost(make: type, tmp_path: Path) -> None:
    settings = replace(make(tmp_path), training=BRIEF)
    if settings.model.startswith("scratch:"):
        settings = replace(settings, model=_made(settings))
    run, model = open_trained(settings, tmp_path / "work", Silent())
    folder = tmp_path / "exported"
    folder.mkdir()
    record = fill(folder, model, settings.model, find_target("torch"))
    whole, program = costs(settings, run.task, run.processor, model, folder, record)
    assert program.difference < 1e-4
    assert program.examples_per_second > 0 and whole.examples_per_second > 0
    assert bool(whole.metrics) != run.task.generates
    for split, scores in whole.metrics.items():
        assert program.metrics[split] == pytest.approx(scores, rel=1e-4)
