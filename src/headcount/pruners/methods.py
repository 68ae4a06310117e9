"""The methods by name: a new pruner is a file beside this one, and a row here."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from importlib import import_module
from numbers import Real
from typing import TYPE_CHECKING, Any

from headcount.errors import HeadcountError, SettingError

if TYPE_CHECKING:
    from headcount.pruners.base import Pruner
    from headcount.pruners.choice import Keep
    from headcount.pruners.settings import Key, PrunerSettings

UNPRUNED = "unpruned"  # what all others are measured against
DEFAULT = "handover"
# The module and the class, loaded when they are used. Figures colour methods in this order.
METHODS: dict[str, str | type[Pruner]] = {
    "joint-dsp": "dsp:JointDSP",
    "handover": "handover:Handover",
    "pipelined-dsp": "dsp:PipelinedDSP",
    "ste": "ste:STE",
    "hard-concrete": "hard_concrete:HardConcrete",
    "surgeon": "surgeon:Surgeon",
    "michel": "michel:Michel",
    "random": "fixed:Random",
    "attrition": "attrition:Attrition",
    "fixed": "fixed:Fixed",
    "ablation": "ablation:Ablation",
    "magnitude": "magnitude:Magnitude",
    "wanda": "wanda:Wanda",
    "taylor": "taylor:Taylor",
    "fisher": "fisher:Fisher",
    "flap": "flap:Flap",
    "osscar": "osscar:Osscar",
    UNPRUNED: "fixed:Unpruned",
}


def register_method(pruner: type[Pruner]) -> type[Pruner]:
    """Make a pruner of your own known by its name, to runs and studies too.

    Args:
        pruner: a subclass of `Pruner`; its `name` must be free.
    """
    if METHODS.get(pruner.name, pruner) is not pruner:
        raise HeadcountError(
            f"there is a method {pruner.name!r} already; give your pruner another name"
        )
    METHODS[pruner.name] = pruner
    return pruner


def find_pruner(name: str) -> type[Pruner]:
    """The class of the method of that name."""
    if not isinstance(name, str) or name not in METHODS:
        raise HeadcountError(f"there is no method {name!r}; choose one of {', '.join(METHODS)}")
    row = METHODS[name]
    if isinstance(row, str):
        module, _, cls = row.partition(":")
        found: type[Pruner] = getattr(import_module(f"headcount.pruners.{module}"), cls)
        return found
    return row


def methods_that(ask: str) -> list[str]:
    """The names of methods with a property, such as `is_post_hoc` or `takes_many`."""
    found = []
    for name in METHODS:
        answer = getattr(find_pruner(name), ask)
        if answer() if callable(answer) else answer:
            found.append(name)
    return found


def make_pruner(
    name: str,
    keep: Keep | None,
    given: Mapping[str, Any],
    *,
    seed: int = 0,
    warm: bool = False,
    rate: float | None = None,
    rank_all: bool = False,
) -> Pruner:
    """The pruner of a method, from the settings of a recipe.

    Args:
        name: of the method.
        keep: K; None for methods that find their own.
        given: its settings, as a recipe has them.
        seed: the seed of the run.
        warm: the model is fine-tuned already.
        rate: learning rate of a model that was fine-tuned before; None for the same.
        rank_all: rank all heads down to the last, for any K.

    Raises:
        HeadcountError: a setting or the keep is not what the method can take.
    """
    pruner = find_pruner(name)
    if isinstance(keep, Collection):
        refuse_many(name)
    settings = read_settings(name, given, warm).at_rate(rate)
    if pruner.keeps_all:
        return pruner(settings=settings, seed=seed)  # type: ignore[call-arg]
    if keep is None and pruner.needs_keep(settings):
        raise HeadcountError(f"{name} needs to know how many heads to keep; give keep")
    for one in keep if isinstance(keep, Collection) else (keep,):
        if one is not None and not _is_keep(one):
            raise HeadcountError(
                f"keep is {one!r}, expected one head or more, or a fraction; give another one"
            )
    return pruner(None if rank_all else keep, settings, seed=seed)


def _is_keep(keep: Any) -> bool:
    is_number = not isinstance(keep, bool) and isinstance(keep, Real)
    return is_number and bool(0 < keep < math.inf)


def read_settings(name: str, given: Mapping[str, Any], warm: bool = False) -> PrunerSettings:
    """The settings of a method, from a recipe, each checked against its dataclass.

    Args:
        name: of the method.
        given: its settings, as a recipe has them.
        warm: the model is fine-tuned already.

    Raises:
        SettingError: a setting is not what it should be.
        UnknownSettingError: the method has no such setting.
    """
    pruner = find_pruner(name)
    _refuse_compensation(pruner, given)
    known = recipe_keys(pruner)
    for key in given:
        if key not in known:
            raise UnknownSettingError(name, key, known)
    try:
        kind = pruner.settings_class
        return kind.from_recipe(kind.in_run(given, warm))
    except SettingError as error:
        raise error.of(name) from error


class UnknownSettingError(HeadcountError):
    """A setting that a method does not have."""

    def __init__(self, method: str, setting: str, known: Collection[str]) -> None:
        super().__init__(f"{method} has no setting {setting}; it has {', '.join(sorted(known))}")
        self.setting = setting


def recipe_keys(pruner: type[Pruner]) -> dict[str, Key]:
    """The settings that a recipe may give to a method, by name."""
    keys = pruner.settings_class.described()
    return {key.name: key for key in keys if key.name not in pruner.withheld}


def refuse_many(name: str) -> None:
    """Refuse several K for a method that chooses for one at a time."""
    if not find_pruner(name).takes_many:
        able = " or ".join(methods_that("takes_many"))
        raise HeadcountError(
            f"{name} cannot learn for several K in one run; give one keep, or use {able}"
        )


def _refuse_compensation(pruner: type[Pruner], given: Mapping[str, Any]) -> None:
    if given.get("compensate") and not pruner.is_post_hoc():
        raise HeadcountError(
            f"{pruner.name} trains the model itself, which makes up for heads that go; leave out "
            f"compensate, which is for {', '.join(methods_that('is_post_hoc'))}"
        )
