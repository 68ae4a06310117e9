"""The picture of the demo: accuracies, and the heads that each method keeps.

It is made for the head of a README: whatever it says can still be read at half its width.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, to_rgb
from matplotlib.figure import Figure

from headcount.heads.mask import HeadMask
from headcount.plots.style import GREY, PALE, look, new_figure

_SIZE = 12.0  # points; half of it is what a README's column leaves of it
_WIDTH, _ROW, _AXIS = 10.0, 1.45, 0.45  # inches; each row, and the axis below them
_BARS = 2.4  # how many times as wide as a map the bars are
_LIGHT = 0.4  # brightness of a bar from which black is easier to read on it than white
Key = tuple[str, int]  # method and number of heads


def draw_demo(
    scores: Mapping[Key, float], unpruned: float, heads: int, masks: Mapping[Key, HeadMask]
) -> Figure:
    """A row for each number of heads: bars of the accuracy, then a map per method.

    Args:
        scores: the accuracy, by method and number of heads.
        unpruned: the accuracy of the model with all heads.
        heads: how many heads that model has.
        masks: the kept heads, by method and number of heads.
    """
    methods = list(dict.fromkeys(method for method, _ in scores))
    keeps = sorted({keep for _, keep in scores}, reverse=True)
    figure = new_figure(_WIDTH, _ROW * len(keeps) + _AXIS)
    ratios = [_BARS, *(1.0 for _ in methods)]
    grid = figure.subplots(len(keeps), 1 + len(methods), squeeze=False, width_ratios=ratios)
    for keep, (bars, *maps) in zip(keeps, grid, strict=True):
        _draw_bars(bars, {method: scores[method, keep] for method in methods}, unpruned)
        bars.set_title(f"{keep} of {heads} heads", fontsize=_SIZE, loc="left", weight="bold")
        for method, axes in zip(methods, maps, strict=True):
            _draw_map(axes, masks[method, keep], str(look(method)["color"]))
            axes.set_title(method, fontsize=_SIZE - 1, loc="left")
        maps[0].set_ylabel("layer", fontsize=_SIZE - 1)
        maps[0].set_yticks([0, len(masks[methods[0], keep].layout) - 1])
    grid[0, 0].annotate(
        f"all {heads}: {100 * unpruned:.1f}", (100 * unpruned, 1.0), ha="center", va="bottom",
        xycoords=("data", "axes fraction"), xytext=(0, 3), textcoords="offset points",
        fontsize=_SIZE - 1, color=GREY,
    )  # fmt: skip
    grid[-1, 0].tick_params(labelbottom=True)
    grid[-1, 0].set_xlabel("accuracy, %", fontsize=_SIZE - 1)
    return figure


def _draw_bars(axes: Axes, scores: Mapping[str, float], unpruned: float) -> None:
    for place, (method, score) in enumerate(scores.items()):
        colour = str(look(method)["color"])
        (bar,) = axes.barh(place, 100 * score, 0.8, color=colour)
        bright = np.dot(np.square(to_rgb(colour)), (0.21, 0.72, 0.07))
        axes.text(
            bar.get_width() - 1.5, place, f"{100 * score:.1f}", ha="right", va="center_baseline",
            fontsize=_SIZE - 1, weight="bold", color="black" if bright > _LIGHT else "white",
        )  # fmt: skip
    axes.axvline(100 * unpruned, color=GREY, linewidth=1.5, linestyle=(0, (4, 2)))
    axes.set_yticks(range(len(scores)), list(scores))
    axes.invert_yaxis()  # the first method on top
    axes.set_xlim(0, 100)
    axes.set_xticks([0, 50, 100])
    axes.tick_params(labelsize=_SIZE - 1, length=0, labelbottom=False)
    axes.spines[["top", "right", "bottom"]].set_visible(False)


def _draw_map(axes: Axes, mask: HeadMask, colour: str) -> None:
    """A row of squares per layer; kept heads have the method's colour."""
    widest = max(born for _, born in mask.layout)
    grid = np.full((len(mask.layout), widest), np.nan)
    start = 0
    for row, (_, born) in enumerate(mask.layout):
        grid[row, :born] = [start + head in mask.kept for head in range(born)]
        start += born
    axes.imshow(grid, cmap=ListedColormap([PALE, colour]), vmin=0, vmax=1, aspect="equal")
    axes.set_xticks(np.arange(-0.5, widest), minor=True)
    axes.set_yticks(np.arange(-0.5, len(grid)), minor=True)
    axes.grid(which="minor", color="white", linewidth=1)
    axes.tick_params(which="both", length=0, labelsize=_SIZE - 2)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_visible(False)
