"""Training settings that cannot be are told before anything happens."""

from __future__ import annotations

import math
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import get_scheduler

from headcount import HeadcountError
from headcount.runs.settings import SCHEDULERS, ExampleSettings, RunSettings, TrainingSettings
from headcount.tasks.classification import TableOptions
from headcount.tasks.image_classification import ImageOptions
from headcount.tasks.lambada import LambadaOptions
from headcount.tasks.language_modelling import LanguageModellingOptions
from headcount.tasks.translation import TranslationOptions

PAGE = Path(__file__).parents[2] / "docs" / "look-up" / "recipes.md"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"batch_size": 0}, "batch_size is 0, expected a whole number from 1"),
        ({"max_length": -5}, "max_length is -5, expected a whole number from 1"),
        ({"max_steps": 0}, "max_steps is 0, expected a whole number from 1"),
        ({"evaluate_every": 0.5}, "evaluate_every is 0.5, expected a whole number from 1"),
        ({"epochs": -1}, "epochs is -1, expected a number from 0"),
        ({"recovery_epochs": -1}, "recovery_epochs is -1, expected a number above 0"),
        ({"learning_rate": "fast"}, "learning_rate is 'fast', expected a number above 0"),
        ({"pruning_learning_rate": 0}, "pruning_learning_rate is 0, expected a number above 0"),
        ({"warmup": -1}, "warmup is -1, expected a number from 0"),
        ({"precision": "float16"}, "precision is 'float16', expected one of fp32, bf16, fp16"),
        ({"scheduler": "foo"}, "scheduler is 'foo', expected one of linear, cosine"),
        ({"scheduler": "warmup_stable_decay"}, "scheduler is 'warmup_stable_decay', expected"),
        ({"epochs": 1e300}, r"epochs is 1e\+300, expected a number from 0 up to 1,000,000"),
        ({"epochs": 10**400}, "epochs is 1000"),
        (
            {"learning_rate": 1e9},
            "learning_rate is 1000000000.0, expected .* above 0 and up to 100",
        ),
        ({"adam_beta2": 1.0}, "adam_beta2 is 1.0, expected a number above 0 and below 1"),
        ({"label_smoothing": 2}, "label_smoothing is 2, expected a number from 0 up to 1"),
        ({"distil": "much"}, "distil is 'much', expected a number above 0 and up to 1"),
        ({"batch_size": 10**12}, "batch_size is 1000000000000, expected a whole number from 1 to"),
        ({"report_to": ("x",)}, "report_to is 'x', expected one of all, .* tensorboard, .* wandb"),
    ],
)
def test_training_settings_that_cannot_be_are_told(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(HeadcountError, match=said):
        TrainingSettings(**wrong)


NUMBERS = [f.name for f in fields(TrainingSettings) if "int" in f.type or "float" in f.type]


@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan, True])
@pytest.mark.parametrize("name", NUMBERS)
def test_no_number_is_infinite_or_none(name: str, number: float) -> None:
    with pytest.raises(HeadcountError, match=f"{name} is {number}, expected"):
        TrainingSettings(**{name: number})


@pytest.mark.parametrize("name", [name for name in SCHEDULERS if name])
def test_every_scheduler_that_can_be_chosen_needs_no_more_than_its_name(name: str) -> None:
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1e-3)
    get_scheduler(name, optimizer, num_warmup_steps=1, num_training_steps=4)


def test_settings_at_the_edge_are_taken() -> None:
    TrainingSettings(epochs=0.1, warmup=0, weight_decay=0.0, max_grad_norm=0, scheduler="linear")
    TrainingSettings(epochs=1_000_000, max_grad_norm=1e30, label_smoothing=0, report_to=("wandb",))


def test_a_seed_is_a_whole_number() -> None:
    with pytest.raises(HeadcountError, match="seed is -1, expected a whole number"):
        RunSettings("model", "mnli", "data", seed=-1)


def test_the_page_of_recipes_has_every_key() -> None:
    page = PAGE.read_text(encoding="utf-8")
    options = (
        TableOptions, ImageOptions, LambadaOptions, LanguageModellingOptions, TranslationOptions
    )  # fmt: skip
    assert all(f"`{name}:" in page for name in ("harness", "harness_tasks", "harness_limit"))
    for settings in (TrainingSettings, ExampleSettings, *options):
        missing = [f.name for f in fields(settings) if f"`{f.name}`" not in page]
        assert not missing, f"{settings.__name__}: {missing}"
