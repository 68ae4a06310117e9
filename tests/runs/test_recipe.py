"""Recipes: what is right is read, what is wrong is told with its line and its key."""

from __future__ import annotations

from pathlib import Path

import pytest

from headcount import HeadcountError
from headcount.runs.recipe import Recipe, fill
from headcount.runs.settings import RunSettings

GOOD = """\
model: bert
task: mnli
data: DIR
keep: 12
training:
  epochs: 3
  learning_rate: 2e-5
  report_to: tensorboard
examples: {text: [premise, hypothesis]}
"""


def read(tmp_path: Path, text: str) -> RunSettings:
    path = tmp_path / "recipe.yaml"
    path.write_text(text, encoding="utf-8")
    recipe = Recipe.read(path)
    return fill(RunSettings, recipe, recipe.values)


def test_a_recipe_is_read(tmp_path: Path) -> None:
    settings = read(tmp_path, GOOD)
    assert settings.keep == 12
    assert isinstance(settings.keep, int)
    assert settings.training.learning_rate == 2e-5  # YAML takes it for text
    assert settings.training.report_to == ("tensorboard",)
    assert settings.examples.text == ("premise", "hypothesis")


def test_a_fraction_stays_one(tmp_path: Path) -> None:
    assert read(tmp_path, GOOD.replace("keep: 12", "keep: 0.5")).keep == 0.5


def test_several_numbers_are_several(tmp_path: Path) -> None:
    assert read(tmp_path, GOOD.replace("keep: 12", "keep: [12, 0.5]")).keep == (12, 0.5)


def test_numbers_may_be_written_short_wherever_they_stand(tmp_path: Path) -> None:
    settings = read(tmp_path, GOOD + "settings: {lambda: 2e-3, name: e5, start: -1.5E2}\n").settings
    assert settings == {"lambda": 0.002, "name": "e5", "start": -150.0}


@pytest.mark.parametrize(
    ("wrong", "right", "said"),
    [
        ("epohcs: 3", "epochs: 3", r"line 6: there is no key epohcs in training; did you mean epo"),
        ("epochs: many", "epochs: 3", r"line 6: epochs is 'many', expected a number"),
        ("keep: [x]", "keep: 12", r"line 4: keep is \['x'\], expected a number or a list"),
        ("taks: mnli", "task: mnli", r"line 2: there is no key taks; did you mean task\?"),
        ("task: mnli\ntask: sst2", "task: mnli", r"line 3: the key task stands there twice"),
        ("keep: [12", "keep: 12", r"line \d+: this is not YAML"),
        ("keep: true", "keep: 12", r"line 4: keep is True, expected"),
        ("", "task: mnli\n", r"the key task is missing"),
    ],
)
def test_a_mistake_is_told_with_its_line(tmp_path: Path, wrong: str, right: str, said: str) -> None:
    assert right in GOOD
    with pytest.raises(HeadcountError, match=said):
        read(tmp_path, GOOD.replace(right, wrong, 1))


@pytest.mark.parametrize("text", ["", "- a list\n", "just words\n"])
def test_a_file_without_keys_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(HeadcountError, match="holds no settings"):
        read(tmp_path, text)


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(HeadcountError, match="cannot read"):
        Recipe.read(tmp_path / "none.yaml")


def test_a_file_that_is_not_text_is_told(tmp_path: Path) -> None:
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(HeadcountError, match="not text in UTF-8"):
        Recipe.read(tmp_path / "binary.yaml")


def test_a_date_that_does_not_exist_is_told(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text("task: mnli\ndata: 2024-02-30\n")
    with pytest.raises(HeadcountError, match=r"recipe.yaml has a value that cannot be: day is"):
        Recipe.read(tmp_path / "recipe.yaml")
