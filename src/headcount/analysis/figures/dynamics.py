"""When each run settles, as a share of its training: a row per method, a mark per run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from headcount.report.figures.style import dress, legend, new_figure

if TYPE_CHECKING:
    from headcount.analysis.dynamics import Dynamics

_MARKERS = ("o", "s", "^", "D", "v", "P", "X")


def draw_settling(found: Dynamics) -> Figure:
    """The further left, the earlier the choice was made; shades and marks tell K apart."""
    methods = list(dict.fromkeys(course.method for course in found.courses))
    counts = sorted({course.keep for course in found.courses})
    shades = mpl.colormaps["viridis"](np.linspace(0.0, 0.85, max(len(counts), 2)))
    figure = new_figure(5.2, 0.5 * len(methods) + 1.9)
    axes = figure.subplots()
    for place, keep in enumerate(counts):
        runs = [course for course in found.courses if course.keep == keep]
        style: dict[str, Any] = {"color": shades[place], "marker": _MARKERS[place % len(_MARKERS)]}
        # Each K a little lower than the last, so that no mark hides another.
        shift = 0.5 * (place - (len(counts) - 1) / 2) / max(len(counts), 2)
        axes.plot(
            [course.settles_at / max(course.last, 1) for course in runs],
            [methods.index(course.method) + shift for course in runs],
            linestyle="none", markersize=5.5, alpha=0.85,
            label="1 head" if keep == 1 else f"{keep} heads", **style,
        )  # fmt: skip
    dress(axes, found.title, "share of the training after which nothing changes", "")
    axes.set_yticks(range(len(methods)), methods)
    axes.set_ylim(len(methods) - 0.4, -0.6)
    axes.set_xlim(-0.02, 1.03)
    axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    legend(figure, axes)
    return figure
