"""Agreement as a matrix of methods, one panel per number of heads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from headcount.report.figures.style import new_figure

if TYPE_CHECKING:
    from headcount.analysis.agreement import Agreement


def draw_agreement(found: Agreement) -> Figure:
    """κ of every pair of methods; a diagonal cell is that of two seeds of one method."""
    counts = sorted({o.keep for o in found.overlaps}, reverse=True)
    names = list(dict.fromkeys(n for o in found.overlaps for n in (o.first, o.second)))
    columns = min(3, len(counts))
    rows = -(-len(counts) // columns)
    side = 0.42 * len(names) + 0.3
    figure = new_figure(columns * side + 2.4, rows * (side + 0.4) + 1.3)
    grid = figure.subplots(rows, columns, squeeze=False, sharey=True)
    for axes, keep in zip(grid.flat, counts, strict=False):
        values = np.full((len(names), len(names)), np.nan)
        for overlap in found.overlaps:
            if overlap.keep == keep:
                a, b = names.index(overlap.first), names.index(overlap.second)
                values[max(a, b), min(a, b)] = overlap.kappa
        image = axes.imshow(values, cmap="RdBu", vmin=-1, vmax=1)
        for (y, x), value in np.ndenumerate(values):
            if not np.isnan(value):
                colour = "white" if abs(value) > 0.65 else "black"
                text = f"{value:.2f}".replace("0.", ".").replace("-", "−")
                axes.text(x, y, text, ha="center", va="center", fontsize=7.5, color=colour)
        axes.set_title(f"{keep} heads", fontsize=9)
        lowest = counts.index(keep) + columns >= len(counts)
        shown = names if lowest else [""] * len(names)
        axes.set_xticks(range(len(names)), shown, rotation=50, ha="right", rotation_mode="anchor")
        axes.set_yticks(range(len(names)), names)
        axes.tick_params(length=0, labelsize=8)
        axes.spines[:].set_visible(False)
    for axes in grid.flat[len(counts) :]:
        axes.set_visible(False)
    bar = figure.colorbar(image, ax=grid, fraction=0.05)
    bar.set_label("κ: 1 the same heads, 0 chance", fontsize=9)
    bar.ax.tick_params(labelsize=8)
    figure.suptitle(f"{found.model}: do methods keep the same heads?", fontsize=10)
    return figure
