"""A map of layers × heads: how important each head is, and which ones are kept."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from headcount.heads.mask import HeadMask
from headcount.plots.style import RED


def draw_head_map(mask: HeadMask, importance: Sequence[float], title: str, path: Path) -> None:
    """Draw one row per block and one square per head.

    Args:
        mask: the kept heads, which are framed, unless all are kept.
        importance: importance of each head by its flat index; NaN if unknown.
        title: text above the map.
        path: where to write; its ending decides the format: .png, .svg or .pdf.
    """
    blocks = mask.layout
    width = max(born for _, born in blocks)
    figure = Figure(figsize=(0.36 * width + 2.6, 0.36 * len(blocks) + 1.4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    grid = np.full((len(blocks), width), np.nan)
    flat, framed = 0, len(mask) < mask.born
    for row, (_, born) in enumerate(blocks):
        for head in range(born):
            grid[row, head] = importance[flat]
            if framed and flat in mask.kept:
                axes.add_patch(
                    Rectangle((head - 0.45, row - 0.45), 0.9, 0.9, fill=False, edgecolor=RED)
                )
            flat += 1
    image = axes.imshow(grid, cmap="Blues")
    figure.colorbar(image, ax=axes, label="importance", fraction=0.05)
    axes.set_xlabel("head")
    axes.set_xticks(range(width))
    axes.set_yticks(range(len(blocks)), [name for name, _ in blocks])
    axes.tick_params(length=0, labelsize=8)
    axes.set_title(f"{title} (kept: framed)" if framed else title, loc="left", fontsize=10)
    for side in axes.spines.values():
        side.set_visible(False)
    figure.savefig(path, dpi=160)
