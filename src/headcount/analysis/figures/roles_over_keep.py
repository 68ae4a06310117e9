"""Roles of the kept heads, a column per number of heads: Voita et al. (2019), Fig. 8."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from headcount.analysis.figures.roles import role_patches, squares
from headcount.report.figures.style import new_figure

if TYPE_CHECKING:
    from headcount.analysis.roles.over_keep import KeptSet, RolesOverKeep

_TALLEST = 12  # squares on top of one another; more stand side by side
_SQUARE = 0.15  # inches
_PANELS = 3  # side by side
_LETTER = 0.07  # inches of a title


def draw_roles_over_keep(found: RolesOverKeep) -> Figure:
    """One panel per method, its first seed; heads are stacked in the order of their roles."""
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


def _width(one: KeptSet) -> int:
    """Squares side by side: two at least, so that the number below has room."""
    return max(2, -(-one.keep // _TALLEST))


def _columns(found: RolesOverKeep, method: str) -> list[KeptSet]:
    """The unpruned model, then the first seed at each number of heads, most first."""
    first: dict[int, KeptSet] = {}
    for one in sorted(found.sets, key=lambda one: (-one.keep, one.seed)):
        if one.method == method:
            first.setdefault(one.keep, one)
    return [found.whole, *first.values()]


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
