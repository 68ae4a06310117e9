"""Read settings from a YAML file. An error names the line and the key of a mistake."""

from __future__ import annotations

import difflib
import re
import typing
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

import yaml

from headcount.errors import HeadcountError
from headcount.pruners.settings import converted, said

Key = tuple[str, ...]
_Settings = TypeVar("_Settings")


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """Reads 2e-5 as a number, which YAML takes for text."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"),
    list("-+0123456789"),
)


def read_yaml(text: str) -> Any:
    """The content of a YAML text."""
    return yaml.load(text, Loader=_Loader)


@dataclass(frozen=True)
class Recipe:
    """The content of a YAML file, and the line of each key.

    Attributes:
        path: the file.
        values: its content.
        lines: the line of each key, by the keys that lead to it.
    """

    path: Path
    values: dict[str, Any]
    lines: Mapping[Key, int]

    @classmethod
    def read(cls, path: str | Path) -> Recipe:
        """Read a file; its top level must be keys and values."""
        path = Path(path)
        try:
            text = path.read_text(encoding="utf-8")
            node = yaml.compose(text, Loader=yaml.SafeLoader)
            values = read_yaml(text)
        except OSError as error:
            raise HeadcountError(
                f"cannot read {path}: {error.strerror}; give a YAML file"
            ) from error
        except UnicodeDecodeError as error:
            raise HeadcountError(f"{path} is not text in UTF-8; give a YAML file") from error
        except ValueError as error:  # for example a date that does not exist
            raise HeadcountError(
                f"{path} has a value that cannot be: {error}; put it between quotes"
            ) from error
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            where = f", line {mark.line + 1}" if mark else ""
            problem = getattr(error, "problem", None) or "it cannot be parsed"
            raise HeadcountError(f"{path}{where}: this is not YAML: {problem}") from error
        if not isinstance(values, dict):
            raise HeadcountError(f"{path} holds no settings; expected lines such as task: mnli")
        lines: dict[Key, int] = {}
        _note_lines(node, (), lines)
        return cls(path, values, lines)

    def error(self, key: Key, problem: str) -> HeadcountError:
        """The error for a problem at a key; it names the file and the line."""
        line = self.lines.get(key)
        where = f", line {line}" if line else ""
        return HeadcountError(f"{self.path}{where}: {problem}")


def _note_lines(node: yaml.Node | None, key: Key, lines: dict[Key, int]) -> None:
    if isinstance(node, yaml.MappingNode):
        for name, value in node.value:
            inner = (*key, str(name.value))
            if inner in lines:
                raise HeadcountError(
                    f"line {name.start_mark.line + 1}: the key {name.value} stands there twice, "
                    f"first in line {lines[inner]}; remove one"
                )
            lines[inner] = name.start_mark.line + 1
            _note_lines(value, inner, lines)


def fill(
    cls: type[_Settings], recipe: Recipe, values: Mapping[str, Any], at: Key = ()
) -> _Settings:
    """Make a settings dataclass of a part of a recipe.

    Args:
        cls: the dataclass.
        recipe: knows the lines, for error messages.
        values: the part of the recipe, or some of its keys.
        at: the keys that lead to the part.
    """
    if not isinstance(values, Mapping):
        raise recipe.error(at, f"{at[-1]} is {values!r}, expected keys and values below it")
    hints = typing.get_type_hints(cls)
    names = {f.name for f in fields(cls)}  # type: ignore[arg-type]
    made: dict[str, Any] = {}
    for name, value in values.items():
        key = (*at, str(name))
        if name not in names:
            near = [known for known in sorted(names) if known.startswith(str(name))]
            near = near or difflib.get_close_matches(str(name), names, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(sorted(names))}"
            place = f" in {'.'.join(at)}" if at else ""
            raise recipe.error(key, f"there is no key {name}{place}; {hint}")
        made[name] = _converted(hints[name], value, recipe, key)
    missing = [
        f.name
        for f in fields(cls)  # type: ignore[arg-type]
        if f.name not in made and f.default is MISSING and f.default_factory is MISSING
    ]
    if missing:
        raise recipe.error(at, f"the key {missing[0]} is missing")
    return cls(**made)


def _converted(hint: Any, value: Any, recipe: Recipe, key: Key) -> Any:
    if is_dataclass(hint):
        return fill(typing.cast(type[Any], hint), recipe, value, key)
    try:
        return converted(hint, value)
    except ValueError:
        raise recipe.error(key, f"{key[-1]} is {value!r}, expected {said(hint)}") from None
