"""What only some tasks know: `DataSettings.options`, checked and in the right types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, TypeVar

from headcount.errors import HeadcountError

_Options = TypeVar("_Options")
_TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def read_options(start: _Options, given: Mapping[str, Any], task: str) -> _Options:
    """Change the options of a data class, which may come as text from a command line.

    Args:
        start: the options that hold where none is given. A field that is None there takes what is
            given, a tuple takes text with commas, and any other a value of its own type.
        given: values by name.
        task: for the error.

    Raises:
        HeadcountError: an option is not known, or its value does not fit.
    """
    known = [field.name for field in fields(start)]  # type: ignore[arg-type]
    for name in given:
        if name not in known:
            raise HeadcountError(
                f"{task} has no option {name!r}; it has {', '.join(sorted(known))}"
            )
    values = {name: _convert(name, value, getattr(start, name)) for name, value in given.items()}
    return replace(start, **values)  # type: ignore[type-var]


def _convert(name: str, value: Any, default: Any) -> Any:
    if default is None or value is None:
        return value
    if isinstance(default, tuple):
        return tuple(value.split(",") if isinstance(value, str) else value)
    if isinstance(default, bool) and not isinstance(value, bool):
        value = _TRUTH.get(str(value).lower(), value)
        if isinstance(value, bool):
            return value
    elif isinstance(default, str):
        return str(value)
    elif isinstance(default, float) and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    elif isinstance(value, str):
        try:
            return type(default)(value)
        except ValueError:
            pass
    if type(value) is type(default):
        return value
    raise HeadcountError(
        f"option {name} is {value!r}, expected {_EXPECTED[type(default)]} such as {default}"
    )


_EXPECTED = {int: "a whole number", float: "a number", bool: "true or false"}
