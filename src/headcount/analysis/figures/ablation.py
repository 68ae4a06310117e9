"""What closing heads costs: a map of the heads, a histogram, the blocks, and two data sets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from headcount.plots.style import GREY, axis_label, dress, legend, new_figure, unit

if TYPE_CHECKING:
    from headcount.analysis.ablation.all_but_one import AblateAllButOne
    from headcount.analysis.ablation.one import AblateOne
    from headcount.analysis.ablation.transfer import AblateTransfer

_BLUE, _RED = "#0072b2", "#d55e00"
_NAMED = 6  # heads
_MOST_WRITTEN = 16  # heads per block, beyond which numbers in the cells would not be legible


def draw_map(found: AblateOne) -> Figure:
    """Blocks down, heads across; orange where the model is worse without the head."""
    blocks = found.blocks()
    width = max(e.head for e in found.effects) + 1
    scale = unit(found.metric)
    grid = np.full((len(blocks), width), np.nan)
    for row, effects in enumerate(blocks.values()):
        for effect in effects:
            grid[row, effect.head] = scale * effect.change
    most = float(np.nanmax(np.abs(grid))) or 1.0
    figure = new_figure(0.42 * width + 2.4, 0.34 * len(blocks) + 1.6)
    axes = figure.subplots()
    # Orange is worse, whichever way the metric points.
    colours = "PuOr" if found.greater_is_better else "PuOr_r"
    image = axes.imshow(grid, cmap=colours, vmin=-most, vmax=most, aspect="auto")
    sure = {e.name for e in found.significant(corrected=True)}
    low = {e.name for e in found.significant()}
    for row, effects in enumerate(blocks.values()):
        for effect in effects:
            value = grid[row, effect.head]
            mark = "**" if effect.name in sure else "*" if effect.name in low else ""
            text = f"{_short(value)}{mark}" if width <= _MOST_WRITTEN else mark
            colour = "white" if abs(value) > 0.7 * most else "black"
            axes.text(
                effect.head, row, text, ha="center", va="center", fontsize=7, color=colour,
                fontweight="bold" if mark else "normal",
            )  # fmt: skip
    _head_axes(axes, width, list(blocks))
    axes.set_title(
        f"{found.model}, {found.split}: change without each head\n"
        f"* p < {found.alpha:g}   ** also after Holm's correction",
        loc="left",
        fontsize=9.5,
    )
    bar = figure.colorbar(image, ax=axes, fraction=0.05)
    bar.set_label(f"change of {_points(found.metric)}", fontsize=9)
    bar.ax.tick_params(labelsize=8)
    return figure


def draw_histogram(found: AblateOne) -> Figure:
    """How many heads leave the model at which metric (Fig. 1)."""
    scale = unit(found.metric)
    values = np.array([scale * e.value for e in found.effects])
    figure = new_figure(5.2, 3.2)
    axes = figure.subplots()
    axes.hist(values, bins=min(40, max(10, len(values) // 4)), color=_BLUE, edgecolor="white")
    axes.axvline(scale * found.whole, color=_RED, linestyle="--", linewidth=1.6)
    axes.annotate(
        "unpruned", (scale * found.whole, 1), xycoords=("data", "axes fraction"), xytext=(4, -9),
        textcoords="offset points", color=_RED, fontsize=9,
    )  # fmt: skip
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    title = f"{found.model}, {found.split}: without one of {len(values)} heads"
    dress(axes, title, axis_label(found.metric), "heads")
    return figure


def draw_all_but_one(found: AblateAllButOne) -> Figure:
    """The change in each block that keeps one head; filled where the test is below alpha."""
    scale = unit(found.metric)
    changes = [scale * b.change for b in found.blocks]
    figure = new_figure(5.4, 0.27 * len(changes) + 1.4)
    axes = figure.subplots()
    places = range(len(changes))
    axes.axvline(0, color=GREY, linewidth=1)
    axes.hlines(places, 0, changes, color="#bbbbbb", linewidth=2)
    for low, label in ((True, f"p < {found.alpha:g}"), (False, "not significant")):
        chosen = [i for i in places if (found.blocks[i].p_value < found.alpha) == low]
        if not chosen:
            continue
        axes.scatter(
            [changes[i] for i in chosen], chosen, s=34, zorder=3, label=label,
            color=_RED if low else "white", edgecolors=_RED if low else _BLUE, linewidths=1.5,
            marker="D" if low else "o",
        )  # fmt: skip
    dress(
        axes,
        f"{found.model}, {found.split}: one head left in a block",
        f"change of {_points(found.metric)}",
        "",
    )
    axes.set_yticks(places, [f"{b.block}  (head {b.best})" for b in found.blocks])
    axes.invert_yaxis()
    axes.legend(fontsize=8, frameon=False, loc="best")
    return figure


def draw_transfer(found: AblateTransfer) -> Figure:
    """A point per head: the metric on both sets without it (Fig. 2)."""
    one, two = found.first, found.second
    scale = unit(one.metric)
    figure = new_figure(4.8, 4.2)
    axes = figure.subplots()
    axes.axvline(scale * one.whole, color=GREY, linestyle="--", linewidth=1)
    axes.axhline(scale * two.whole, color=GREY, linestyle="--", linewidth=1)
    places: dict[tuple[float, float], int] = {}
    for a, b in zip(one.effects, two.effects, strict=True):
        place = (scale * a.value, scale * b.value)
        places[place] = places.get(place, 0) + 1
    # Small sets have few values of a metric, so that many heads lie on one point.
    sizes = [18 * count for count in places.values()]
    x, y = zip(*places, strict=True)
    axes.scatter(
        x, y, s=sizes, color=_BLUE, alpha=0.6, edgecolors="none", label="heads, as many as the area"
    )
    axes.scatter(
        [scale * one.whole], [scale * two.whole], marker="*", s=130, color=_RED, zorder=4,
        label="unpruned",
    )  # fmt: skip
    names: dict[tuple[float, float], list[str]] = {}
    for a, b in found.top()[:_NAMED]:
        names.setdefault((scale * a.value, scale * b.value), []).append(a.name)
    for place, some in names.items():
        axes.annotate(
            "\n".join(some), place, xytext=(5, -4), textcoords="offset points", fontsize=8,
            va="top",
        )  # fmt: skip
    axes.margins(0.12, 0.12)
    axes.set_xlim(right=axes.get_xlim()[1] + 0.1 * np.ptp(axes.get_xlim()))  # for the names
    metric = axis_label(one.metric)
    r = f"{found.pearson:.2f}".replace("-", "−")
    title = f"{one.model}: without one of {len(one.effects)} heads, r = {r}"
    dress(axes, title, f"{metric}, {one.split}", f"{metric}, {two.split}")
    legend(figure, axes)
    return figure


def _head_axes(axes: Axes, width: int, blocks: list[str]) -> None:
    axes.set_xlabel("head", fontsize=9)
    axes.set_xticks(range(width))
    axes.set_yticks(range(len(blocks)), blocks)
    axes.tick_params(length=0, labelsize=8)
    axes.spines[:].set_visible(False)


def _points(metric: str) -> str:
    """The metric with the unit of a difference: percentage points."""
    return axis_label(metric).replace(", %", ", points")


def _short(value: float) -> str:
    digits = 1 if abs(value) < 99.95 else 0
    text = f"{value:.{digits}f}".replace("-", "−")
    return "0" if float(f"{value:.{digits}f}") == 0 else text
