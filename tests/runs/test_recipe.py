"""Recipes: what is right is read, what is wrong is told with its line and its key."""

from __future__ import annotations

import math
import time
from pathlib import Path

import pytest

from headcount import HeadcountError
from headcount.cli.options import pairs, run_settings
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
        ("task: mnli\ntask: sst2", "task: mnli", r"line 3: the key task is there twice"),
        ("keep: [12", "keep: 12", r"line \d+: this is not YAML"),
        ("keep: true", "keep: 12", r"line 4: keep is True, expected"),
        (
            "keep: .inf",
            "keep: 12",
            r"line 4: keep is inf, expected a number \(finite, .* or a list",
        ),
        ("method: []", "keep: 12", r"line 4: method is \[\], expected text"),
        ("epochs: .inf", "epochs: 3", r"line 6: epochs is inf, expected a number \(finite"),
        ("epochs: 1e300", "epochs: 3", r"line 6: epochs is 1e\+300, expected a number"),
        ("epochs: 1e20", "epochs: 3", r"line 6: epochs is 1e\+20, expected a number from 0 up to"),
        ("epochs: -1", "epochs: 3", r"line 6: epochs is -1.0, expected a number from 0 up to"),
        ("warmup: .inf", "epochs: 3", r"line 6: warmup is inf, expected a number \(finite"),
        ("adam_beta2: .nan", "epochs: 3", r"line 6: adam_beta2 is nan, expected a number"),
        ("adam_beta2: 1.5", "epochs: 3", r"line 6: adam_beta2 is 1.5, expected a number above 0"),
        ("report_to: x", "report_to: tensorboard", r"line 8: report_to is 'x', expected one of"),
        ("max_steps: 9" + "9" * 400, "epochs: 3", r"line 6: max_steps is 9.*, expected a whole"),
        ("seed: -1", "keep: 12", r"line 4: seed is -1, expected a whole number"),
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
    with pytest.raises(HeadcountError, match=r"there is no file .*none\.yaml"):
        Recipe.read(tmp_path / "none.yaml")


def test_a_file_that_is_not_text_is_told(tmp_path: Path) -> None:
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(HeadcountError, match="not text in UTF-8"):
        Recipe.read(tmp_path / "binary.yaml")


def test_a_date_that_does_not_exist_is_told(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text("task: mnli\ndata: 2024-02-30\n")
    with pytest.raises(HeadcountError, match=r"recipe.yaml: it has a value that cannot be: day is"):
        Recipe.read(tmp_path / "recipe.yaml")


LAUGHS = "a0: &a0 [ha, ha]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12)
)
MERGED = "a0: &a0 {k: ha}\n" + "".join(
    f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 9)}]}}\n" for i in range(1, 12)
)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (LAUGHS, r"line \d+: this is more than settings ever hold"),
        (MERGED, r"line \d+: this is more than settings ever hold"),
        ("a: &a [*a]\n", r"line 1: \*a holds itself"),
        ("a: &a {b: *a}\n", r"line 1: \*a holds itself"),
        ("a: " + "[" * 3000 + "]" * 3000, r"line 1: this is more than settings ever hold"),
        ("a: " + "{b: " * 3000 + "}" * 3000, r"line 1: this is more than settings ever hold"),
        ("".join(" " * i + "b:\n" for i in range(1000)), "this is more than settings ever hold"),
        ("a: [" + "1, " * 100_000 + "]", r"line 1: this is more than settings ever hold"),
        ("a: " + "x" * 2**21, r"has 2,097,155 bytes, expected at most 1,048,576"),
        ('a: "\\ud800"\n', r"line 1: a text has half of a sign"),
        ("a: 0x" + "f" * 5000, r"line 1: a number has over 1,000 digits"),
        ("a: " + "9" * 5000, "has a value that cannot be"),
        ("a: !!timestamp x\n", "has a value that cannot be"),
        ("a: !!bool x\n", "has a value that cannot be"),
        ("a: !!python/object/apply:os.getcwd []\n", r"line 1: this is not YAML: could not deter"),
        ("a: *b\n", r"line 1: this is not YAML: found undefined alias"),
        ("? [a]\n: b\n", r"this is not YAML: found unhashable key"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_what_would_take_forever_is_refused_at_once(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text(text, encoding="utf-8")
    began = time.monotonic()
    with pytest.raises(HeadcountError, match=says):
        Recipe.read(path)
    assert time.monotonic() - began < 5


def test_an_alias_is_read_as_what_it_stands_for(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text("a: &a {b: 1, c: 2}\nd: {<<: *a, c: 3}\ne: *a\n")
    read = Recipe.read(path).values
    assert (read["d"], read["e"]) == ({"b": 1, "c": 3}, {"b": 1, "c": 2})


@pytest.mark.parametrize(
    "value", ["[" * 3000, "&a [*a]", "2024-02-30", "!!int x", "[1", '"\\ud800"', "0x" + "f" * 2000]
)
def test_a_setting_that_yaml_cannot_read_is_told(value: str) -> None:
    with pytest.raises(HeadcountError, match=r"the value of name is .*, which YAML cannot read: "):
        pairs([f"name={value}"])


def test_options_of_a_task_are_texts_unless_they_are_in_quotes() -> None:
    given = ["prompt=query: ", "config=no", r'join="\n"', "beams=3", "empty="]
    texts = {"prompt": "query: ", "config": "no", "join": "\n", "beams": "3", "empty": ""}
    assert pairs(given, as_text=True) == texts
    assert pairs(["layers=3", "fit=no"]) == {"layers": 3, "fit": False}


@pytest.mark.parametrize("options", [{"epochs": math.inf}, {"learning_rate": math.nan}])
def test_an_option_is_checked_like_a_key_of_a_recipe(options: dict[str, float]) -> None:
    given = {"model": "bert", "task": "mnli", "data": "DIR", **options}
    with pytest.raises(HeadcountError, match=f"{next(iter(options))} is .*, expected a number"):
        run_settings(given)


def test_a_method_that_is_no_text_is_told_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text(GOOD + "method: []\nsettings: {michel: {step: 1}}\n")
    with pytest.raises(HeadcountError, match=r"line 10: method is \[\], expected text"):
        run_settings({"recipe": tmp_path / "recipe.yaml"})
