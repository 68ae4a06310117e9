"""The options that say what the data are, written once for every command that reads data."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from headcount.cli import options

Given = dict[str, Any]
Command = Callable[..., None]


def _options(
    task: options.Task = None,
    data: options.Data = None,
    recipe: options.RecipeFile = None,
    eval_batch_size: options.EvalBatchSize = None,
    limit_train: options.LimitTrain = None,
    limit_eval: options.LimitEval = None,
    max_length: options.MaxLength = None,
    train: options.Train = None,
    evaluate: options.Evaluate = None,
    text: options.Text = None,
    label: options.Label = None,
    source: options.Source = None,
    target: options.Target = None,
    option: options.Option = None,
    seed: options.Seed = None,
) -> None:
    """What `with_data` adds; never called."""


_SHARED = inspect.signature(_options, eval_str=True).parameters


def with_data(without: tuple[str, ...] = ()) -> Callable[[Command], Command]:
    """Add the options of the data to a command, which gets their values by name in `given`.

    Args:
        without: names of those that mean nothing to the command.
    """
    shared = [option for name, option in _SHARED.items() if name not in without]

    def add(command: Command) -> Command:
        own = inspect.signature(command, eval_str=True)
        parameters = [p for p in own.parameters.values() if p.name != "given"]

        @functools.wraps(command)
        def called(**values: Any) -> None:
            given = {option.name: values.pop(option.name) for option in shared}
            command(**values, given=given)

        # From these typer learns what to ask for.
        called.__signature__ = own.replace(parameters=[*parameters, *shared])  # type: ignore[attr-defined]
        called.__annotations__ = {p.name: p.annotation for p in (*parameters, *shared)}
        return called

    return add
