"""Roles as a map of layers × heads, and how well the best head finds each relation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from matplotlib.collections import PatchCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from headcount.analysis.roles.criteria import ROLES, Role, offset_text
from headcount.report.figures.style import GREY, dress, legend, new_figure

if TYPE_CHECKING:
    from headcount.analysis.roles.result import HeadRoles, Roles

# Of Okabe and Ito, as near to the paper's as they have: purple, green, orange and grey.
COLOURS: dict[Role, str] = {
    "positional": "#cc79a7", "syntactic": "#009e73", "rare": "#e69f00", "duplicate": "#56b4e9"
}  # fmt: skip
OTHER, GONE = "#cccccc", "#f4f4f4"
NAMES: dict[Role, str] = {
    "positional": "positional", "syntactic": "syntactic", "rare": "rare tokens",
    "duplicate": "duplicates",
}  # fmt: skip
_SIDE = 0.9  # of a square


def draw_roles(found: Roles) -> Figure:
    """One row per block, one square per head, with the colours of its roles and a word on them."""
    width = max(born for _, born in found.layout)
    figure = new_figure(0.42 * width + 1.4, 0.42 * len(found.layout) + 1.5)
    axes = figure.subplots()
    there = {head.name: head for head in found.heads}
    drawn: list[Rectangle] = []
    for row, (block, born) in enumerate(found.layout):
        for column in range(born):
            head = there.get(f"{block}.{column}")
            if head is None:
                drawn += _stripes(column, row, (GONE,))
                continue
            drawn += squares(column, row, head.roles)
            axes.text(column, row, "\n".join(_words(head)), ha="center", va="center", fontsize=7)
            if (head.special or 0.0) > found.criteria.special:
                axes.plot(column + 0.33, row + 0.33, "o", color="black", markersize=2)
            if found.kept is not None and head.name in found.kept:
                axes.add_patch(_frame(column, row))
    axes.add_collection(PatchCollection(drawn, match_original=True))
    axes.set_xlim(-0.6, width - 0.4)
    axes.set_ylim(len(found.layout) - 0.4, -0.6)
    axes.set_aspect("equal")
    axes.set_xticks(range(width))
    axes.set_yticks(range(len(found.layout)), [name for name, _ in found.layout])
    axes.tick_params(length=0, labelsize=8)
    axes.spines[:].set_visible(False)
    axes.set_xlabel("head", fontsize=9)
    axes.set_title(f"What heads do: {found.model}, {found.data}", loc="left", fontsize=10)
    dot = Line2D([], [], marker="o", color="black", markersize=3, linestyle="none")
    handles = [*role_patches(), dot]
    labels = [str(patch.get_label()) for patch in role_patches()] + ["rests on special tokens"]
    if found.kept is not None:
        handles.append(_frame(0, 0))
        labels.append("kept")
    figure.legend(
        handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=8
    )  # fmt: skip
    return figure


def draw_relations(found: Roles) -> Figure:
    """How often the best head finds each relation, beside the best fixed position."""
    rows = list(reversed(found.relations))
    figure = new_figure(6.0, 0.2 * len(rows) + 1.4)
    axes = figure.subplots()
    margin = found.criteria.syntactic
    for y, row in enumerate(rows):
        above = row.accuracy >= row.baseline + margin
        colour = COLOURS["syntactic"] if above else GREY
        ends = [100 * row.baseline, 100 * row.accuracy]
        axes.plot(ends, [y, y], color=colour, linewidth=1)
        axes.plot(ends[0], y, "|", color="black", markersize=8)
        axes.plot(
            ends[1], y, "o", color=colour, markersize=5, fillstyle="full" if above else "none"
        )
        axes.annotate(
            row.head, (max(ends), y), xytext=(6, 0), textcoords="offset points", va="center",
            fontsize=7, color=colour,
        )  # fmt: skip
    dress(
        axes, f"Relations: {found.model}, {found.data}", "largest weight on the other word, %", ""
    )
    axes.set_yticks(
        range(len(rows)), [f"{row.relation} → {row.direction} ({row.cases})" for row in rows]
    )
    axes.tick_params(labelsize=8)
    axes.set_xlim(0, 110)
    axes.set_ylim(-0.8, len(rows) - 0.2)
    axes.plot([], [], "|", color="black", markersize=8, label="best fixed position")
    label = f"best head, {100 * margin:.0f} points above"
    axes.plot([], [], "o", color=COLOURS["syntactic"], label=label)
    axes.plot([], [], "o", color=GREY, fillstyle="none", label="best head, below that")
    legend(figure, axes)
    return figure


def role_patches() -> list[Patch]:
    """What the colours stand for."""
    known = [Patch(color=COLOURS[role], label=NAMES[role]) for role in ROLES]
    return [*known, Patch(color=OTHER, label="other")]


def squares(x: float, y: float, roles: tuple[Role, ...]) -> Iterator[Rectangle]:
    """The square of a head, with a stripe for each of its roles."""
    return _stripes(x, y, tuple(COLOURS[role] for role in roles) or (OTHER,))


def _stripes(x: float, y: float, colours: tuple[str, ...]) -> Iterator[Rectangle]:
    width = _SIDE / len(colours)
    for number, colour in enumerate(colours):
        left = x - _SIDE / 2 + number * width
        yield Rectangle((left, y - _SIDE / 2), width, _SIDE, color=colour, linewidth=0)


def _frame(x: float, y: float) -> Rectangle:
    return Rectangle(
        (x - _SIDE / 2, y - _SIDE / 2), _SIDE, _SIDE, fill=False, edgecolor="black", linewidth=1.4
    )


def _words(head: HeadRoles) -> Iterator[str]:
    """Where it looks, so that the map is legible in grey too."""
    if "positional" in head.roles and head.offset is not None:
        yield offset_text(head.offset)
    if "syntactic" in head.roles:
        yield f"S{len(head.relations)}" if len(head.relations) > 1 else "S"
    if "rare" in head.roles:
        yield "R"
    if "duplicate" in head.roles:
        yield "="
