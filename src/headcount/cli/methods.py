"""`headcount methods`: the methods, and the settings of one."""

from __future__ import annotations

import inspect
from typing import Annotated

from rich.console import Console
from rich.table import Table

from headcount.cli.help import argument

_NEEDS = {
    "training": "trains the model",
    "gate training": "trains gates only",
    "scoring": "trains nothing",
}


def methods(
    name: Annotated[str | None, argument("NAME", "A method, to see its settings.")] = None,
) -> None:
    """List the methods, or show the settings of one.

    Examples:
        # What is there to choose from?
        headcount methods
        # Every setting of one method, with its meaning
        headcount methods handover
    """
    console = Console()
    if name is None:
        _list(console)
    else:
        _show(console, name)


def _list(console: Console) -> None:
    from headcount.pruners.methods import METHODS, find_pruner

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    for name in METHODS:
        pruner = find_pruner(name)
        table.add_row(name, _NEEDS[pruner.needs], _first_sentence(pruner))
    console.print(table, highlight=False)
    console.print("headcount methods NAME shows the settings of one", highlight=False)


def _show(console: Console, name: str) -> None:
    from headcount.pruners.methods import find_pruner, recipe_keys

    pruner = find_pruner(name)
    console.print(f"{name}: {_first_sentence(pruner)}\n", highlight=False, markup=False)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in ("setting", "default", "meaning"):
        table.add_column(column, no_wrap=column == "setting")
    for key in recipe_keys(pruner).values():
        meaning = key.meaning + "".join(
            f" In {p}: {v}." for p, v in key.presets.items() if p != "default" and v != key.default
        )
        table.add_row(key.name, key.default, meaning)
    console.print(table, highlight=False)
    console.print(
        f"\nOn the command line --setting name=value; in a recipe or study below settings: {name}:",
        highlight=False,
        markup=False,
    )


def _first_sentence(cls: type) -> str:
    """The first line of a class's docstring, which is a sentence."""
    return inspect.cleandoc(cls.__doc__ or "").splitlines()[0]
