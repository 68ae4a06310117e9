"""Read settings from a YAML file. An error names the line and the key of a mistake."""

from __future__ import annotations

import difflib
import re
import typing
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from pathlib import Path
from reprlib import repr as in_brief
from typing import Any, TypeVar

import yaml

from headcount.errors import HeadcountError, SettingError
from headcount.json_file import read_bytes
from headcount.pruners.settings import converted, expected

Key = tuple[str, ...]
# More than the largest study needs, and little enough to be read in a second or two.
MOST_BYTES, MOST_VALUES, MOST_LEVELS = 2**20, 20_000, 50
_Settings = TypeVar("_Settings")


class NotYamlError(HeadcountError):
    """A text that is not YAML, or not YAML that settings can be read from.

    Args:
        problem: what is wrong, and what to do.
        line: where, counted from 1; None if that is not known.
    """

    def __init__(self, problem: str, line: int | None = None) -> None:
        super().__init__(problem if line is None else f"line {line}: {problem}")
        self.problem, self.line = problem, line


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """Reads 2e-5 as a number, which YAML takes for text."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"),
    list("-+0123456789"),
)


def read_yaml(text: str) -> Any:
    """The content of a YAML text.

    Raises:
        NotYamlError: it is not YAML, or larger or deeper than settings ever are.
    """
    return _parsed(text)[0]


def _parsed(text: str) -> tuple[Any, dict[Key, int]]:
    """The content of a YAML text, and the line of each key."""
    lines: dict[Key, int] = {}
    try:
        _refuse_bomb(text)
        loader = _Loader(text)
        node = loader.get_single_node()
        _note_lines(node, (), lines)  # before the keys of a << are put in its place
        return None if node is None else loader.construct_document(node), lines
    except HeadcountError:
        raise
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or "it cannot be parsed"
        raise NotYamlError(
            f"this is not YAML: {problem}; put text with signs between quotes, and close brackets",
            mark.line + 1 if mark else None,
        ) from error
    except Exception as error:  # a date that does not exist, a tag that does not fit its value
        raise NotYamlError(
            f"it has a value that cannot be: {error}; put it between quotes"
        ) from error


def _refuse_bomb(text: str) -> None:
    """Refuse text that would grow or nest without end when it is read.

    An alias stands for all that its anchor has, which may hold aliases itself, so that ten lines
    can mean a billion values. Events come one after another: nothing is expanded to count them.
    """
    size = 0  # of all so far, with aliases expanded
    sizes: dict[str | None, int] = {}  # by anchor
    begun: list[tuple[str | None, int]] = []  # anchors of open collections, and the size before
    for event in yaml.parse(text, Loader=_Loader):
        line = event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent):
            if any(anchor == event.anchor for anchor, _ in begun):
                raise NotYamlError(f"*{event.anchor} holds itself; write out what it means", line)
            size += sizes.get(event.anchor, 0)
        elif isinstance(event, yaml.ScalarEvent):
            _refuse_odd_text(event.value, line)
            own = 1 + len(event.value) // 100
            sizes[event.anchor] = own
            size += own
        elif isinstance(event, yaml.CollectionStartEvent):
            begun.append((event.anchor, size))
            size += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = begun.pop()
            sizes[anchor] = size - before
        if size > MOST_VALUES or len(begun) > MOST_LEVELS:
            raise NotYamlError(
                f"this is more than settings ever hold: over {MOST_VALUES:,} values or "
                f"{MOST_LEVELS} levels, aliases written out; give a smaller file",
                line,
            )


def _refuse_odd_text(value: str, line: int) -> None:
    """Refuse what cannot be written to a file, and numbers that Python does not print."""
    if any("\ud800" <= sign <= "\udfff" for sign in value):
        raise NotYamlError("a text has half of a sign of two parts; remove it", line)
    if len(value) > 1000 and re.fullmatch(r"[-+]?0[xb]?[0-9a-fA-F_]+", value):
        raise NotYamlError("a number has over 1,000 digits; give a smaller one", line)


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
        content = read_bytes(path)
        if len(content) > MOST_BYTES:
            raise HeadcountError(
                f"{path} has {len(content):,} bytes, expected at most {MOST_BYTES:,}; give a YAML "
                "file with settings"
            )
        try:
            text = content.decode("utf-8")
        except UnicodeDecodeError as error:
            raise HeadcountError(f"{path} is not text in UTF-8; give a YAML file") from error
        try:
            values, lines = _parsed(text)
        except NotYamlError as error:
            where = f", line {error.line}" if error.line else ""
            raise HeadcountError(f"{path}{where}: {error.problem}") from error
        if not isinstance(values, dict):
            raise HeadcountError(f"{path} holds no settings; expected lines such as task: mnli")
        return cls(path, values, lines)

    def error(self, key: Key, problem: str) -> HeadcountError:
        """The error for a problem at a key; it names the file, and the line if it has the key."""
        places = (key[:length] for length in range(len(key), 0, -1))
        line = next((self.lines[place] for place in places if place in self.lines), None)
        where = f", line {line}" if line else ""
        return HeadcountError(f"{self.path}{where}: {problem}")


def _note_lines(node: yaml.Node | None, key: Key, lines: dict[Key, int]) -> None:
    if isinstance(node, yaml.MappingNode):
        for name, value in node.value:
            inner, line = (*key, str(name.value)), name.start_mark.line + 1
            if inner in lines:
                raise NotYamlError(
                    f"the key {name.value} is there twice, first in line {lines[inner]}; "
                    "remove one",
                    line,
                )
            lines[inner] = line
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
        raise recipe.error(at, f"{at[-1]} is {in_brief(values)}, expected keys and values below it")
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
    try:
        return cls(**made)
    except SettingError as error:
        raise recipe.error((*at, error.setting), str(error)) from error
    except HeadcountError as error:
        raise recipe.error(at, str(error)) from error


def _converted(hint: Any, value: Any, recipe: Recipe, key: Key) -> Any:
    if is_dataclass(hint):
        return fill(typing.cast(type[Any], hint), recipe, value, key)
    try:
        return converted(hint, value)
    except ValueError:
        raise recipe.error(
            key, f"{key[-1]} is {in_brief(value)}, expected {expected(hint, value)}"
        ) from None
