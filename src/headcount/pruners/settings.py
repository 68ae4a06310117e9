"""The settings of a pruner: one frozen dataclass is all that is known about them.

A field's type says what is accepted, its default what holds otherwise, and the docstring what it
means. Recipes and `--setting` are checked against it, `headcount methods NAME` prints it, and the
tables of `docs/look-up/methods.md` are made from it.
"""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Collection, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, fields, replace
from functools import cache
from typing import Any, ClassVar, Literal, Self, TypeVar

from headcount.errors import SettingError

HIDDEN = {"recipe": None}  # metadata of a field that only Python code sets
PRESET = "preset"
LARGEST_INT, LARGEST_FLOAT = 2**63 - 1, 3.4e38  # of int64 and float32, which models compute in
Unit = Literal["head", "group"]  # what goes or stays together; see `units.py`
_Settings = TypeVar("_Settings", bound="PrunerSettings")


def named(recipe: str) -> dict[str, Any]:
    """Metadata of a field that recipes know by another name."""
    return {"recipe": recipe}


@dataclass(frozen=True)
class Key:
    """A setting as a recipe has it.

    Attributes:
        name: what comes before the colon.
        expects: what may come after it, in words.
        default: what holds if it is left out.
        presets: what the presets have in its place, by their names.
        meaning: what it does, and when to change it.
    """

    name: str
    expects: str
    default: str
    presets: Mapping[str, str]
    meaning: str


@dataclass(frozen=True, kw_only=True)
class PrunerSettings:
    """Settings that every pruner has.

    Attributes:
        kinds: decide about heads of these kinds only: encoder, decoder, cross. All others stay.
        layers: decide about heads of these layers only, counted from 0. All others stay.
        min_per_block: leave at least this many heads in each block. 1 keeps every block from losing
            all of its heads.
        even: keep the same number of heads in every layer; which ones is free. Turn it on for
            runtimes that want a plain configuration: vLLM, MLX, transformers without headcount.
            Layers that had different numbers keep the same share. K must fit; a fraction is rounded
            to one that does.
        unit: what goes or stays together: `head`, a single head, or `group`, all query heads that
            share a key-value head. Take groups to shrink the key-value cache. K is a number of
            heads in both cases.
        freeze: patterns of parameter names that do not train while the pruner is attached, such as
            `model.decoder.*`. Voita et al. freeze the decoder while they prune the encoder.
        commit_at: share of the training after which the choice is final. The trainer then cuts the
            other heads out and trains the small model on, which is faster. None chooses until the
            end.
    """

    kinds: tuple[str, ...] | None = None
    layers: tuple[int, ...] | None = None
    min_per_block: int = 0
    even: bool = False
    unit: Unit = "head"
    freeze: tuple[str, ...] = ()
    commit_at: float | None = None

    presets: ClassVar[Mapping[str, Any]] = {}

    def __post_init__(self) -> None:
        hints = hints_of(type(self))
        for field in fields(self):
            value = getattr(self, field.name)
            try:
                object.__setattr__(self, field.name, converted(hints[field.name], value))
            except ValueError:
                raise SettingError(field.name, value, expected(hints[field.name], value)) from None
        if self.commit_at is not None and not 0 <= self.commit_at < 1:
            raise SettingError(
                "commit_at", self.commit_at, "a share of the training; give one from 0 to below 1"
            )
        if self.min_per_block < 0:
            raise SettingError(
                "min_per_block", self.min_per_block, "a whole number of heads; give one from 0"
            )

    @classmethod
    def in_run(cls, given: Mapping[str, Any], warm: bool) -> Mapping[str, Any]:
        """What a recipe gives, completed by what follows from its training.

        Args:
            given: settings of the recipe.
            warm: the model is fine-tuned already.
        """
        return given

    def at_rate(self, rate: float | None) -> Self:
        """The same for a run with this learning rate after a fine-tuning; None for the usual."""
        return self

    @property
    def frozen_after(self) -> tuple[str, ...]:
        """Patterns of weights that stay as they are when the cut model is fitted or trained on."""
        return self.freeze

    @classmethod
    def from_recipe(cls, given: Mapping[str, Any]) -> Self:
        """The settings from the keys of a recipe, each of which must be known."""
        by_key = {key: field.name for key, field in cls.recipe_fields()}
        start = cls()
        if PRESET in given:
            start = find_preset(cls, given[PRESET])
        values = {by_key[key]: value for key, value in given.items() if key != PRESET}
        return replace(start, **values)

    @classmethod
    def recipe_fields(cls) -> Iterator[tuple[str, Field[Any]]]:
        """The fields that recipes know, by their names there; those that all pruners have last."""
        common = {field.name for field in fields(PrunerSettings)}
        for field in sorted(fields(cls), key=lambda field: field.name in common):
            key = field.metadata.get("recipe", field.name)
            if key is not None:
                yield key, field

    @classmethod
    def described(cls) -> list[Key]:
        """Everything that a recipe can say, in the order of the fields."""
        meanings, hints = meanings_of(cls), hints_of(cls)
        keys = [
            Key(
                key,
                said(hints[field.name]),
                shown(default_of(field)),
                {name: shown(getattr(preset, field.name)) for name, preset in cls.presets.items()},
                meanings.get(field.name, ""),
            )
            for key, field in cls.recipe_fields()
        ]
        if cls.presets:
            names = " or ".join(cls.presets)
            keys.insert(0, Key(PRESET, names, "default", {}, meanings.get(PRESET, "")))
        return keys


@dataclass(frozen=True, kw_only=True)
class PostHocSettings(PrunerSettings):
    """Settings of pruners that do not train the model's weights.

    Attributes:
        compensate: fit the output weights of the heads that stay, and the last map of a classifier,
            by least squares, so that they make up for those that go. It is worth most where
            nothing is trained after the cut.
        compensate_sample: number of training examples to fit them on, drawn with the run's seed.
            None takes as many as have 160,000 tokens, at least 512 and at most 4,096. For language
            models and images it takes 512.
    """

    compensate: bool = False
    compensate_sample: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.compensate_sample is not None and not self.compensate:
            raise SettingError(
                "compensate_sample",
                self.compensate_sample,
                "nothing, because nothing is compensated; give compensate too",
            )
        if self.compensate_sample is not None and self.compensate_sample < 1:
            raise SettingError(
                "compensate_sample", self.compensate_sample, "a number of examples from 1"
            )


@dataclass(frozen=True, kw_only=True)
class LearnedSettings(PrunerSettings):
    """How a pruner that learns parameters of its own trains them.

    Attributes:
        decay: let the learning rate of the pruner's own parameters follow the trainer's schedule.
            False keeps it constant.
        clip: longest gradient of the pruner's own parameters, clipped apart from the model's. None
            leaves it as it is. `with-model` clips both together at the trainer's `max_grad_norm`. A
            large gradient then shrinks that step of the model too.
    """

    decay: bool = True
    clip: float | Literal["with-model"] | None = 1.0


# Settings that decide nothing about which heads are kept: one ranking serves with and without.
AFTER_THE_CHOICE = ("compensate", "compensate_sample", "tune")


def find_preset(cls: type[_Settings], name: Any) -> _Settings:
    """The preset of that name."""
    if not isinstance(name, str) or name not in cls.presets:
        raise SettingError(PRESET, name, " or ".join(cls.presets) or "none, as there is no preset")
    preset: _Settings = cls.presets[name]
    return preset


def hints_of(cls: Any) -> dict[str, Any]:
    """The types of a dataclass's fields."""
    return _hints(cls)


@cache
def _hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def default_of(field: Field[Any]) -> Any:
    """What a field holds if it is not given."""
    if field.default_factory is not MISSING:
        return field.default_factory()
    return field.default


def converted(hint: Any, value: Any) -> Any:
    """The value as the type has it: a list as a tuple, 2e-5 as the number that it is.

    Raises:
        ValueError: it is not of that type.
    """
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        options = typing.get_args(hint)
        if value is False and any(hasattr(option, "from_setting") for option in options):
            value = None  # switched off
        # 12 stays a count, and one number is no list of one.
        for option in sorted(options, key=_breadth):
            try:
                return converted(option, value)
            except ValueError:
                continue
        raise ValueError
    origin = typing.get_origin(hint) or hint
    if hint is Any or (hint is types.NoneType and value is None):
        return value
    if origin is Literal:
        return _literal(typing.get_args(hint), value)
    if hasattr(origin, "from_setting"):
        return value if isinstance(value, origin) else _from_setting(origin, value)
    if origin is tuple:
        return _tuple(typing.get_args(hint), value)
    if (isinstance(value, bool) and origin is not bool) or _is_absurd(value):
        raise ValueError
    if origin is float and isinstance(value, int | float | str):
        return _number(value)
    if origin is str and isinstance(value, int | float):
        return str(value)
    if isinstance(origin, type) and isinstance(value, origin):
        return value
    raise ValueError


def _number(value: float | str) -> float:
    number = float(value)
    if _is_absurd(number):  # as text can be
        raise ValueError
    return number


def _is_absurd(value: Any) -> bool:
    """Whether a value is a number that models cannot compute with: infinite, NaN, too large."""
    if isinstance(value, float):
        return not abs(value) <= LARGEST_FLOAT
    return isinstance(value, int) and abs(value) > LARGEST_INT


def _from_setting(kind: Any, value: Any) -> Any:
    try:
        return kind.from_setting(value)
    except (TypeError, OverflowError):
        raise ValueError from None


def _literal(options: tuple[Any, ...], value: Any) -> Any:
    if not isinstance(value, str) or value not in options:
        raise ValueError
    return value


def _tuple(inner: tuple[Any, ...], value: Any) -> tuple[Any, ...]:
    many = isinstance(value, Collection) and not isinstance(value, str | Mapping)
    items = list(value) if many else [value]
    kinds = [inner[0]] * len(items) if inner[-1] is Ellipsis else list(inner)
    if len(kinds) != len(items):
        raise ValueError
    return tuple(converted(kind, item) for kind, item in zip(kinds, items, strict=True))


def _breadth(hint: Any) -> int:
    order = (types.NoneType, bool, int, float)
    if hint in order:
        return order.index(hint)
    origin = typing.get_origin(hint)
    return {Literal: 3, tuple: 6}.get(origin, 5 if hint is str else 4)


_SAID: dict[Any, str] = {
    int: "a whole number", float: "a number", str: "text", bool: "true or false",
    dict: "keys and values",
}  # fmt: skip


def said(hint: Any) -> str:
    """What a type accepts, in words."""
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        options = [o for o in typing.get_args(hint) if o is not types.NoneType]
        if float in options:
            options = [o for o in options if o is not int]
        return " or ".join(dict.fromkeys(said(option) for option in options))
    origin = typing.get_origin(hint) or hint
    if origin is Literal:
        return " or ".join(typing.get_args(hint))
    if origin is tuple:
        inner = typing.get_args(hint)
        return "a list" if inner[-1] is Ellipsis else f"a list of {len(inner)} numbers"
    if hasattr(origin, "expects"):
        return str(origin.expects)
    return _SAID.get(origin, "text")


def expected(hint: Any, value: Any) -> str:
    """What a type accepts, in words for the one who gave this value."""
    usual = "number (finite, and of a usual size)" if _is_absurd(value) else "number"
    return said(hint).replace("number", usual, 1)


def shown(value: Any) -> str:
    """A value as a recipe would have it."""
    if value is None or value == ():
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if hasattr(value, "as_setting"):
        return shown(value.as_setting())
    if isinstance(value, tuple | list):
        return f"[{', '.join(shown(one) for one in value)}]"
    return f"{value:g}" if isinstance(value, float) else str(value)


def meanings_of(cls: type) -> dict[str, str]:
    """What each attribute means, from the docstrings of a dataclass and its bases."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        found |= _attributes(inspect.cleandoc(base.__doc__ or ""))
    return found


def _attributes(docstring: str) -> dict[str, str]:
    _, _, section = docstring.partition("Attributes:\n")
    found: dict[str, str] = {}
    name = ""
    for line in section.splitlines():
        if line and not line.startswith(" "):
            break  # the next section
        start = re.fullmatch(r" {4}(\w+): (.*)", line)
        if start:
            name = start[1]
            found[name] = start[2]
        elif name and line.strip():
            found[name] += f" {line.strip()}"
    return found
