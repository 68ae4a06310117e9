"""Roles of the kept heads, by number of kept heads: Voita et al. (2019), Fig. 8."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from headcount.analysis.base import Analysis
from headcount.analysis.roles.criteria import ROLES, Role
from headcount.analysis.roles.result import HeadRoles, Roles, role_patches, squares
from headcount.errors import HeadcountError
from headcount.plots.style import new_figure
from headcount.pruners.methods import UNPRUNED
from headcount.study.read import read_study

_TALLEST = 12  # squares on top of each other; more are side by side
_SQUARE = 0.15  # inches
_PANELS = 3  # side by side
_LETTER = 0.07  # inches, in a title


@dataclass(frozen=True)
class Kept:
    """A kept head.

    Attributes:
        name: name of the head: `encoder.3.7`.
        roles: all roles that it has.
        functions: how many functions it has; each relation counts.
    """

    name: str
    roles: tuple[Role, ...]
    functions: int


@dataclass(frozen=True)
class KeptSet:
    """The heads that a run kept.

    Attributes:
        method: name of the method that chose them.
        keep: number of kept heads.
        seed: the run's seed.
        heads: the kept heads by role; those without a role come last.
    """

    method: str
    keep: int
    seed: int
    heads: tuple[Kept, ...]

    def count(self, role: Role | None) -> int:
        """How many heads have this role; None counts the heads without a role."""
        return sum(role in head.roles if role else not head.roles for head in self.heads)


@dataclass(frozen=True)
class RolesOverKeep(Analysis):
    """Which roles survive as fewer heads are kept.

    Attributes:
        model: name of the model.
        data: name of the data that it read.
        pruned: whether the roles were measured in each run's pruned model. If not, they are those
            of the unpruned model.
        whole: all heads of the unpruned model.
        sets: the kept heads of each run, most heads first.
    """

    kind: ClassVar[str] = "roles-over-keep"

    model: str
    data: str
    pruned: bool
    whole: KeptSet
    sets: tuple[KeptSet, ...]

    @property
    def title(self) -> str:
        return f"Roles of the kept heads, {self.model}, {self.data}"

    @property
    def note(self) -> str:
        which = (
            "measured in each pruned model, where roles may have moved"
            if self.pruned
            else "those that the heads have in the unpruned model; in a pruned one they may differ"
        )
        return (
            "How many of the kept heads have each role, and what share of the unpruned model's "
            f"heads of that role are kept, beside the share of all heads. Roles are {which}. The "
            "figure shows the first seed of each method, a square per head; the number in a "
            "square says how many functions a head has, if several."
        )

    def table(self) -> pd.DataFrame:
        rows = []
        for one in (self.whole, *self.sets):
            row: dict[str, object] = {"method": one.method, "keep": one.keep, "seed": one.seed}
            row |= {role: one.count(role) for role in ROLES} | {"other": one.count(None)}
            row["all kept"] = one.keep / self.whole.keep
            for role in ROLES:
                there = self.whole.count(role)
                row[f"{role} kept"] = one.count(role) / there if there else float("nan")
            rows.append(row)
        return pd.DataFrame(rows)

    def figures(self) -> Mapping[str, Figure]:
        return {"roles-over-keep": draw_roles_over_keep(self)}


def roles_over_keep(
    roles: Roles, study: Path, measure: Callable[[Path], Roles] | None = None
) -> RolesOverKeep:
    """Look up the roles of the heads that each run of a study kept.

    Args:
        roles: roles of the unpruned model, ideally fine-tuned for the study's task.
        study: folder of the study, as `headcount compare` writes it.
        measure: finds the roles of a run's own model in its folder. None takes the roles that the
            heads have in the unpruned model.

    Raises:
        HeadcountError: the study is of another model, or its runs have no weights to measure.
    """
    by_name = {head.name: head for head in roles.heads}
    sets: list[KeptSet] = []
    for run in read_study(study).runs.values():
        if run.mask is None or run.method == UNPRUNED or not len(run.mask):
            continue
        if run.mask.layout != roles.layout or not set(run.mask.names) <= set(by_name):
            raise HeadcountError(
                f"run {run.name} of {study} kept heads that {roles.model} does not have; give the "
                "unpruned model of that study"
            )
        found = by_name
        if measure is not None:
            if not (run.folder / "config.json").is_file():
                raise HeadcountError(
                    f"run {run.name} of {study} has no model to measure; leave --pruned out, or "
                    "run the study so that it keeps its models"
                )
            found = {head.name: head for head in measure(run.folder).heads}
        heads = [found[name] for name in run.mask.names]
        seed = int(run.settings.get("seed", 0))
        sets.append(KeptSet(run.method, len(run.mask), seed, _ordered(heads)))
    if not sets:
        raise HeadcountError(f"{study} has no finished run that kept heads; finish one first")
    sets.sort(key=lambda one: (-one.keep, one.method, one.seed))
    whole = KeptSet(UNPRUNED, len(roles.heads), 0, _ordered(list(roles.heads)))
    return RolesOverKeep(roles.model, roles.data, measure is not None, whole, tuple(sets))


def _ordered(heads: list[HeadRoles]) -> tuple[Kept, ...]:
    def order(head: HeadRoles) -> tuple[int, ...]:
        return tuple(ROLES.index(role) for role in head.roles) or (len(ROLES),)

    ranked = sorted(heads, key=order)
    return tuple(Kept(head.name, head.roles, head.functions) for head in ranked)


def draw_roles_over_keep(found: RolesOverKeep) -> Figure:
    """One panel per method with its first seed; heads are stacked by role."""
    methods = list(dict.fromkeys(one.method for one in found.sets))
    columns = {method: _columns(found, method) for method in methods}
    tall = min(found.whole.keep, _TALLEST)
    wide = max(sum(_width(one) + 1 for one in sets) for sets in columns.values())
    across = min(_PANELS, len(methods))
    down = -(-len(methods) // across)
    title = f"{found.model}, {found.data}: roles of the kept heads"
    panel = _SQUARE * wide + 0.6
    figure = new_figure(
        max(across * panel, _LETTER * len(title) + 0.4, 4.6), down * (_SQUARE * tall + 0.8) + 0.8
    )
    grid = figure.subplots(down, across, squeeze=False)
    for axes, method in zip(grid.flat, methods, strict=False):
        _stack(axes, columns[method])
        axes.set_xlim(-1, wide)
        axes.set_ylim(-0.6, tall)
        axes.set_aspect("equal")
        axes.set_title(method, loc="left", fontsize=9)
        axes.set_xlabel("kept heads", fontsize=9)
        axes.set_yticks([])
        axes.tick_params(length=0, labelsize=8)
        axes.spines[:].set_visible(False)
    for axes in grid.flat[len(methods) :]:
        axes.set_visible(False)
    figure.suptitle(title, fontsize=10)
    patches = role_patches()
    figure.legend(
        handles=patches, loc="outside lower center", ncols=len(patches), frameon=False, fontsize=8
    )
    return figure


def _columns(found: RolesOverKeep, method: str) -> list[KeptSet]:
    """The unpruned model, then the first seed of each number of heads, most heads first."""
    first: dict[int, KeptSet] = {}
    for one in sorted(found.sets, key=lambda one: (-one.keep, one.seed)):
        if one.method == method:
            first.setdefault(one.keep, one)
    return [found.whole, *first.values()]


def _width(one: KeptSet) -> int:
    """How many squares are side by side: at least two, as room for the number below."""
    return max(2, -(-one.keep // _TALLEST))


def _stack(axes: Axes, sets: list[KeptSet]) -> None:
    drawn: list[Rectangle] = []
    ticks: list[float] = []
    left = 0
    for one in sets:
        wide = _width(one)
        for number, head in enumerate(one.heads):
            y, x = divmod(number, wide)
            drawn += squares(left + x, y, head.roles)
            if head.functions > 1:
                axes.text(
                    left + x, y, str(head.functions), ha="center", va="center_baseline", fontsize=6
                )
        ticks.append(left + (wide - 1) / 2)
        left += wide + 1
    axes.add_collection(PatchCollection(drawn, match_original=True))
    axes.set_xticks(ticks, [str(one.keep) for one in sets])
