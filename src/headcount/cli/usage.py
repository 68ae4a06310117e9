"""What is wrong with how a command was called, in one sentence."""

from __future__ import annotations

from reprlib import repr as in_brief
from typing import Any

import typer

from headcount.cli.help import name_of

# typer has no public name for it. All that it says about a call is one.
UsageError: type[Exception] = typer.BadParameter.__bases__[0]


def usage_sentence(error: Any) -> str:
    """The sentence for an error that typer raised when it read the command line."""
    parameter = getattr(error, "param", None)
    if parameter is not None and error.__cause__ is not None:
        return f"{name_of(parameter)} is {_found_and_expected(error)}"
    if parameter is not None and parameter.required:
        missing = f"{error.ctx.info_name} needs {name_of(parameter, value=True)}"
        return f"{missing}; {error.ctx.command_path} --help has examples"
    near = getattr(error, "possibilities", None)
    if near:
        return f"there is no option {error.option_name}; did you mean {' or '.join(near)}?"
    said, _, near = error.format_message().rstrip(".?").partition(". Did you mean ")
    path = "headcount COMMAND" if error.ctx is None else error.ctx.command_path
    further = f"did you mean {near}?" if near else f"{path} --help says what there is"
    return f"{said[:1].lower()}{said[1:]}; {further}"


def _found_and_expected(error: Any) -> str:
    """The value that an option cannot take, and what it can."""
    first = error.__cause__.errors()[0]  # pydantic converts values for typer
    limits = first.get("ctx", {})
    if "ge" in limits:
        expected = f"{limits['ge']:g} or more"
    elif "le" in limits:
        expected = f"{limits['le']:g} or less"
    else:
        expected = "a whole number" if first["type"].startswith("int") else "a number"
    return f"{in_brief(first['input'])}, expected {expected}"
