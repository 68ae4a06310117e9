"""The roles of a model's heads as an analysis, with a map of the heads and a chart of relations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from headcount.analysis.base import Analysis
from headcount.analysis.roles.criteria import ROLES, Criteria, Direction, Role, offset_text
from headcount.heads.blocks import Kind
from headcount.plots.style import GREY, dress, legend, new_figure

# Colours of Okabe and Ito that are closest to the paper's: purple, green, orange and grey.
COLOURS: dict[Role, str] = {
    "positional": "#cc79a7", "syntactic": "#009e73", "rare": "#e69f00", "duplicate": "#56b4e9"
}  # fmt: skip
OTHER, GONE = "#cccccc", "#f4f4f4"
NAMES: dict[Role, str] = {
    "positional": "positional", "syntactic": "syntactic", "rare": "rare tokens",
    "duplicate": "duplicates",
}  # fmt: skip
_SIDE = 0.9  # of a square


@dataclass(frozen=True)
class HeadRoles:
    """What one head does; None means that it could not be measured.

    Attributes:
        name: name of the head: `encoder.3.7`.
        kind: kind of its attention.
        roles: all roles that it has.
        offset: the relative position that its largest weight is most often on.
        offset_share: how often it is there, if there is a token at this position.
        relation: the relation with the largest gain over the baseline.
        direction: whether it looks at the governor or at the dependent.
        accuracy: how often it hits that relation.
        baseline: how often the best fixed relative position hits that relation.
        relations: all relations that make it syntactic, best first: `nsubj: governor`.
        rare: how often its largest weight is on one of the least frequent tokens.
        rare_by_chance: how often chance would do that.
        duplicate: how often its largest weight is on the same token elsewhere, if it occurs twice.
        duplicate_by_chance: how often chance would do that.
        confidence: mean of its largest weight on a real token.
        entropy: mean entropy of its weights; 1 if it looks at all tokens equally.
        special: how often its largest weight of all is on a special token.
    """

    name: str
    kind: Kind
    roles: tuple[Role, ...]
    offset: int | None
    offset_share: float | None
    relation: str | None
    direction: Direction | None
    accuracy: float | None
    baseline: float | None
    relations: tuple[str, ...]
    rare: float | None
    rare_by_chance: float | None
    duplicate: float | None
    duplicate_by_chance: float | None
    confidence: float | None
    entropy: float | None
    special: float | None

    @property
    def functions(self) -> int:
        """How many functions it has; each relation counts, as in the paper."""
        return len(set(self.roles) - {"syntactic"}) + len(self.relations)


@dataclass(frozen=True)
class Relation:
    """A relation and the head that hits it most often.

    Attributes:
        relation: name of the relation in Universal Dependencies, without its subtype.
        direction: what the head looks for: the governor or the dependent.
        cases: how often the relation occurs in the text.
        offset: the fixed relative position that hits most often.
        baseline: how often that position hits.
        head: name of the best head.
        accuracy: how often the best head hits.
        heads: names of all heads that are above the baseline by the margin.
    """

    relation: str
    direction: Direction
    cases: int
    offset: int
    baseline: float
    head: str
    accuracy: float
    heads: tuple[str, ...]


@dataclass(frozen=True)
class Roles(Analysis):
    """What the heads of a model do.

    Attributes:
        model: name of the model.
        data: name of the data that it read.
        sentences: number of sentences in the data.
        layout: name and original number of heads of each block.
        heads: the roles of the heads that the model still has, in flat order.
        relations: the relations that are frequent enough, largest gain over the baseline first.
        criteria: when a head has a role.
        kept: names of the heads that a mask keeps; None if no mask was given.
    """

    kind: ClassVar[str] = "roles"

    model: str
    data: str
    sentences: int
    layout: tuple[tuple[str, int], ...]
    heads: tuple[HeadRoles, ...]
    relations: tuple[Relation, ...]
    criteria: Criteria = field(default_factory=Criteria)
    kept: tuple[str, ...] | None = None

    @property
    def title(self) -> str:
        return f"Roles of the heads, {self.model}, {self.data}"

    @property
    def counts(self) -> dict[str, int]:
        """How many heads have each role, and how many none."""
        found: dict[str, int] = {
            role: sum(role in head.roles for head in self.heads) for role in ROLES
        }
        return found | {"other": sum(not head.roles for head in self.heads)}

    @property
    def note(self) -> str:
        rule, counts = self.criteria, self.counts
        resting = sum((head.special or 0.0) > rule.special for head in self.heads)
        return (
            f"Of {len(self.heads)} heads {counts['positional']} are positional (the largest weight "
            f"on one relative position in at least {rule.positional:.0%} of cases), "
            f"{counts['syntactic']} syntactic (it finds a governor or dependent at least "
            f"{100 * rule.syntactic:.0f} points more often than the best fixed position, relations "
            f"with {rule.cases} cases or more), {counts['rare']} for rare tokens (on one of the "
            f"{rule.rarest} least frequent in at least {rule.rare:.0%} of cases), "
            f"{counts['duplicate']} for duplicates (where a token is elsewhere too, there "
            f"in at least {rule.duplicate:.0%} of cases); a head may have several roles, "
            f"{counts['other']} have none. Weights on special tokens are left out "
            f"before the largest is taken; {resting} heads rest on special tokens in more than "
            f"{rule.special:.0%} of cases. {self.sentences} sentences; criteria of Voita et al. "
            "(2019), except for duplicates."
        )

    def table(self) -> pd.DataFrame:
        columns = {
            "head": [h.name for h in self.heads],
            "roles": [", ".join(h.roles) or "other" for h in self.heads],
            "offset": [None if h.offset is None else offset_text(h.offset) for h in self.heads],
            "at offset": _numbers([h.offset_share for h in self.heads]),
            "relation": [h.relation and f"{h.relation}: {h.direction}" for h in self.heads],
            "accuracy": _numbers([h.accuracy for h in self.heads]),
            "baseline": _numbers([h.baseline for h in self.heads]),
            "relations": [len(h.relations) for h in self.heads],
            "rare": _numbers([h.rare for h in self.heads]),
            "rare by chance": _numbers([h.rare_by_chance for h in self.heads]),
            "duplicate": _numbers([h.duplicate for h in self.heads]),
            "duplicate by chance": _numbers([h.duplicate_by_chance for h in self.heads]),
            "confidence": _numbers([h.confidence for h in self.heads]),
            "entropy": _numbers([h.entropy for h in self.heads]),
            "special": _numbers([h.special for h in self.heads]),
        }
        if self.kept is not None:
            columns["kept"] = [h.name in self.kept for h in self.heads]
        return pd.DataFrame(columns)

    def figures(self) -> Mapping[str, Figure]:
        found = {"roles": draw_roles(self)}
        return found | {"relations": draw_relations(self)} if self.relations else found


def _numbers(values: list[float | None]) -> pd.Series:
    return pd.Series(values, dtype=float)


def draw_roles(found: Roles) -> Figure:
    """One row per block, one square per head, with the colours and a word of its roles."""
    width = max(born for _, born in found.layout)
    figure = new_figure(0.42 * width + 1.4, 0.42 * len(found.layout) + 1.5)
    axes = figure.subplots()
    _draw_heads(axes, found)
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


def _draw_heads(axes: Axes, found: Roles) -> None:
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


def squares(x: float, y: float, roles: tuple[Role, ...]) -> Iterator[Rectangle]:
    """The square of a head, with a stripe for each of its roles."""
    return _stripes(x, y, tuple(COLOURS[role] for role in roles) or (OTHER,))


def _stripes(x: float, y: float, colours: tuple[str, ...]) -> Iterator[Rectangle]:
    width = _SIDE / len(colours)
    for number, colour in enumerate(colours):
        left = x - _SIDE / 2 + number * width
        yield Rectangle((left, y - _SIDE / 2), width, _SIDE, color=colour, linewidth=0)


def _words(head: HeadRoles) -> Iterator[str]:
    """A short sign per role, so that the map can also be read in grey."""
    if "positional" in head.roles and head.offset is not None:
        yield offset_text(head.offset)
    if "syntactic" in head.roles:
        yield f"S{len(head.relations)}" if len(head.relations) > 1 else "S"
    if "rare" in head.roles:
        yield "R"
    if "duplicate" in head.roles:
        yield "="


def _frame(x: float, y: float) -> Rectangle:
    return Rectangle(
        (x - _SIDE / 2, y - _SIDE / 2), _SIDE, _SIDE, fill=False, edgecolor="black", linewidth=1.4
    )


def role_patches() -> list[Patch]:
    """A patch of colour per role, for a legend."""
    known = [Patch(color=COLOURS[role], label=NAMES[role]) for role in ROLES]
    return [*known, Patch(color=OTHER, label="other")]


def draw_relations(found: Roles) -> Figure:
    """How often the best head hits each relation, compared with the best fixed position."""
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
