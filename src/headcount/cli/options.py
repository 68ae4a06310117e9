"""Options that several commands share, and run settings from a recipe and these options."""

from __future__ import annotations

import functools
import inspect
import json
import os
from collections.abc import Callable
from dataclasses import asdict, fields, replace
from pathlib import Path
from reprlib import repr as in_brief
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import Console

from headcount.cli.help import DATA, OUTPUT, RARE, TRAINING, WHAT, argument, option
from headcount.errors import HeadcountError
from headcount.pruners.methods import DEFAULT
from headcount.tasks.registry import CLASSES, LANGUAGE_MODELLING

if TYPE_CHECKING:
    from headcount.runs.recipe import Recipe
    from headcount.runs.settings import RunSettings

Model = Annotated[str, argument("MODEL", "A model folder or a name on the hub.")]
Task = Annotated[
    str | None,
    option(DATA, "NAME", f"One of {', '.join(CLASSES)}. A language model needs none."),
]
Data = Annotated[str | None, option(DATA, "DATA", "A folder, a file, or a data set on the hub.")]
Train = Annotated[str | None, option(DATA, "FILE", "A file to train on; it needs no --data.")]
Evaluate = Annotated[
    list[str] | None,
    option(DATA, "FILE", "A file to evaluate on; repeatable. The first is the one to tune on."),
]
Text = Annotated[
    list[str] | None,
    option(DATA, "COLUMN", "The column with the text, if its name is unusual; twice for pairs."),
]
Label = Annotated[
    str | None, option(DATA, "COLUMN", "The column with the label, if its name is unusual.")
]
Source = Annotated[
    str | None, option(DATA, "LANGUAGE", "The language to translate from, such as de.")
]
Target = Annotated[
    str | None, option(DATA, "LANGUAGE", "The language to translate into, such as en.")
]
LimitTrain = Annotated[int | None, option(DATA, "N", "Train on this many examples only.")]
LimitEval = Annotated[int | None, option(DATA, "N", "Evaluate on this many examples only.")]
MaxLength = Annotated[int | None, option(DATA, "N", "Cut inputs to this many tokens.")]
BatchSize = Annotated[int | None, option(TRAINING, "N", "Examples per training step.")]
EvalBatchSize = Annotated[int | None, option(RARE, "N", "Examples per batch of an evaluation.")]
Seed = Annotated[
    int | None, option(DATA, "N", "The seed of everything random; 0 if it is not given.")
]
Option = Annotated[
    list[str] | None, option(RARE, "NAME=VALUE", "An option that only this task has; repeatable.")
]
AsJson = Annotated[bool, option(OUTPUT, None, "Print JSON, for programs.", "--json")]
PushToHub = Annotated[
    str | None, option(OUTPUT, "OWNER/MODEL", "Upload the result to the Hugging Face hub.")
]
Private = Annotated[
    bool, option(OUTPUT, None, "With --push-to-hub: make the model private.", "--private")
]
RecipeFile = Annotated[
    Path | None,
    option(WHAT, "FILE", "Take settings from a YAML file; options given here replace them."),
]

FILES = ("train", "evaluate")  # options that need no --data beside them
Given = dict[str, Any]  # the values of options by name; None for those that were not given
Command = Callable[..., None]


def with_data(without: tuple[str, ...] = ()) -> Callable[[Command], Command]:
    """Add the options about data to a command, which gets their values in `given`.

    Args:
        without: names of options that mean nothing to the command.
    """
    shared = [parameter for name, parameter in _SHARED.items() if name not in without]

    def add(command: Command) -> Command:
        own = inspect.signature(command, eval_str=True)
        parameters = [p for p in own.parameters.values() if p.name != "given"]

        @functools.wraps(command)
        def called(**values: Any) -> None:
            given = {parameter.name: values.pop(parameter.name) for parameter in shared}
            command(**values, given=given)

        # typer reads the options from these.
        called.__signature__ = own.replace(parameters=[*parameters, *shared])  # type: ignore[attr-defined]
        called.__annotations__ = {p.name: p.annotation for p in (*parameters, *shared)}
        return called

    return add


def _options(
    recipe: RecipeFile = None,
    task: Task = None,
    data: Data = None,
    train: Train = None,
    evaluate: Evaluate = None,
    text: Text = None,
    label: Label = None,
    limit_train: LimitTrain = None,
    limit_eval: LimitEval = None,
    max_length: MaxLength = None,
    seed: Seed = None,
    source: Source = None,
    target: Target = None,
    eval_batch_size: EvalBatchSize = None,
    option: Option = None,
) -> None:
    """The options that `with_data` adds; never called."""


_SHARED = inspect.signature(_options, eval_str=True).parameters


def run_settings(given: Given) -> RunSettings:
    """The settings of a recipe, if there is one, with those of the options in their place."""
    from headcount.runs.recipe import Recipe, fill
    from headcount.runs.settings import ASKS, ExampleSettings, RunSettings, TrainingSettings

    parts = ("training", "examples", "settings")
    top = [f.name for f in fields(RunSettings) if f.name not in parts]
    recipe = given.get("recipe")
    if recipe is not None:
        read = Recipe.read(recipe)
        own = {name: value for name, value in given.items() if name in top and value is not None}
        values = {**read.values, **own}
        if own.keys() & {"keep", *ASKS}:  # says how many heads in place of the recipe
            values = {k: v for k, v in values.items() if k in own or k not in ("keep", *ASKS)}
        _settings_of_method(read, values)
        _refuse_missing(values, given, f" in {recipe}")
        settings = fill(RunSettings, read, values)
    else:
        values = {name: given[name] for name in top if given.get(name) is not None}
        _refuse_missing(values, given, "")
        settings = RunSettings(**values)
    training = {k: given[k] for k in asdict(TrainingSettings()) if given.get(k) is not None}
    examples = {
        k: _as_tuple(given[k]) for k in asdict(ExampleSettings()) if k != "options" and given.get(k)
    }
    own = {**settings.settings, **pairs(given.get("setting"))}
    options = {**settings.examples.options, **pairs(given.get("option"), as_text=True)}
    return replace(
        settings,
        training=replace(settings.training, **training),
        examples=replace(settings.examples, **{"options": options, **examples}),
        settings=own,
    )


def _settings_of_method(recipe: Recipe, values: dict[str, Any]) -> None:
    """Take the settings of the chosen method: a recipe has them by method, as a study does."""
    by_method = values.get("settings") or {}
    if not isinstance(by_method, dict):
        raise recipe.error(("settings",), "settings must name a method, with its settings below it")
    for method, own in by_method.items():
        if not isinstance(own, dict):
            raise recipe.error(
                ("settings", str(method)),
                f"{method} must have settings below it, found {in_brief(own)}",
            )
    method = values.get("method", DEFAULT)
    # A method that is not text is refused when the recipe is read further.
    values["settings"] = by_method.get(method, {}) if isinstance(method, str) else {}


def _infer_task(values: dict[str, Any]) -> None:
    """Take language modelling for the task of a language model, unless one is given."""
    model, told = values.get("model"), values.get("task") is not None
    if not told and isinstance(model, str) and not model.startswith("scratch:"):
        from headcount.loading.folder import is_language_model

        if is_language_model(model):
            values["task"] = LANGUAGE_MODELLING


def _refuse_missing(values: dict[str, Any], given: Given, where: str) -> None:
    if values.get("model") is None:
        raise HeadcountError(f"the model is missing{where}; give a model folder or a hub name")
    inside = values.get("examples")
    named = [
        part.get(name)
        for part in (given, inside if isinstance(inside, dict) else {})
        for name in FILES
    ]
    if not values.get("data") and not any(named):
        raise HeadcountError(
            f"the data is missing{where}; give --data, or files as --train and --evaluate"
        )
    _infer_task(values)
    if values.get("task") is None:
        raise HeadcountError(f"the task is missing{where}; give --task")


def names_data(given: Given) -> bool:
    """Whether the options say which data to read, or what to do with them."""
    return any(given[name] for name in ("task", "data", "recipe", *FILES))


def _as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def pairs(given: list[str] | None, as_text: bool = False) -> dict[str, Any]:
    """Texts of the form name=value as a dictionary.

    Args:
        given: the texts; None for none.
        as_text: whether a value is a text as it is, like the prompt `query: `, unless it is in
            quotes. Otherwise YAML reads it.
    """
    from headcount.runs.recipe import NotYamlError, read_yaml

    made: dict[str, Any] = {}
    for text in given or ():
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise HeadcountError(f"{text!r} is not a setting; expected name=value")
        quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "'\""
        try:
            made[name.strip()] = value if as_text and not quoted else read_yaml(value)
        except NotYamlError as error:
            raise HeadcountError(
                f"the value of {name.strip()} is {in_brief(value)}, which YAML cannot read: "
                f"{error.problem}"
            ) from None
    return made


def refuse_wrong_setting(settings: RunSettings, recipe: Path | None) -> None:
    """Refuse a setting that the method cannot take, with its line if it is in the recipe."""
    from headcount.pruners.methods import read_settings
    from headcount.runs.recipe import Recipe

    try:
        read_settings(settings.method, settings.settings, settings.starts_trained)
    except HeadcountError as error:
        setting = getattr(error, "setting", None)
        place = ("settings", settings.method, setting) if setting else ("method",)
        read = None if recipe is None else Recipe.read(recipe)
        if read is None or place not in read.lines:  # it is an option's
            raise
        raise read.error(place, str(error)) from error


def fix_layout(given: Given, like: Path) -> None:
    """Turn --from-scratch-like into the method and the setting that it stands for."""
    for name in ("method", "keep", "cache", "parameters", "speed_up", "within"):
        if given.get(name) is not None:
            flag = f"--{name.replace('_', '-')}"
            raise HeadcountError(
                f"--from-scratch-like says which heads to keep, so {flag} {given[name]} makes no "
                f"sense beside it; leave out {flag}"
            )
    given["method"] = "fixed"
    given["setting"] = [*(given.get("setting") or ()), f"like={json.dumps(str(like))}"]


def add_layout(given: Given) -> None:
    """Turn --even, --unit and --labels into the settings of the method that they stand for."""
    said = {name: given.get(name) for name in ("even", "unit", "labels")}
    own = [f"{name}={json.dumps(value)}" for name, value in said.items() if value is not None]
    given["setting"] = [*(given.get("setting") or ()), *own]
    given["labels"] = None  # names of classes are a setting of the data, in recipes


def keep_counts(text: str) -> float | int | tuple[float | int, ...]:
    """K as given on the command line: a count, a fraction, or several with commas between."""
    try:
        counts = [int(part) if part.strip().isdigit() else float(part) for part in text.split(",")]
    except ValueError:
        raise HeadcountError(
            f"--keep is {text!r}, expected a count, a fraction below 1, or several as 48,24,12"
        ) from None
    whole = [int(count) if count >= 1 and float(count).is_integer() else count for count in counts]
    return tuple(whole) if len(whole) > 1 else whole[0]


def refuse_push(name: str) -> None:
    """Refuse now what the hub would refuse after hours of training."""
    from headcount.deploy.hub import refuse_push as refuse

    refuse(name)


def is_first_process() -> bool:
    """Whether this is the first of the processes that torchrun or accelerate started, or alone."""
    return os.environ.get("RANK", "0") == "0"


def push(console: Console, folder: Path, name: str, private: bool) -> None:
    """Upload a folder to the hub from one process, and say where it is."""
    from headcount.deploy.hub import push as upload

    if is_first_process():
        address = upload(folder, name, private)
        console.print(f"pushed to {address}", highlight=False, markup=False, soft_wrap=True)
