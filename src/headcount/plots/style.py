"""The style that all figures share: looks of the methods, frames, legends, labels, files."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import Any, Literal

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from headcount.atomic import write_atomically
from headcount.pruners.methods import METHODS
from headcount.stats.numbers import in_percent

FORMATS = ("svg", "pdf", "png")
GREY, PALE = "#555555", "#e6e6e6"
BLUE, RED, GREEN = "#0072b2", "#d55e00", "#009e73"
# The colours of Okabe and Ito, which the colour-blind can tell apart. Brown replaces yellow, which
# is hard to see on white. In grey, markers and dashes tell the methods apart.
_COLOURS = (
    "#0072b2", "#994f00", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000",
)  # fmt: skip
_MARKERS = ("o", "*", "s", "^", "D", "v", "P", "X")
_DASHES = (
    "-", (0, (4, 1, 1, 1, 1, 1)), "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)),
)  # fmt: skip
_METRIC_NAMES = {
    "bleu": "BLEU", "chrf": "chrF", "f1": "F1", "macro_f1": "macro F1",
    "matthews_correlation": "Matthews correlation", "pearson": "Pearson", "spearman": "Spearman",
}  # fmt: skip
_LEGEND_ROW, _FEW_ROWS = 0.2, 3  # inches per row, and rows that fit without more height
_SIZE = 9.0  # points; can still be read when the figure is printed at half its width


def look(method: str, among: Sequence[str] = ()) -> dict[str, object]:
    """Colour, marker and dashes of a method, the same in all figures.

    Args:
        method: name of the method, or a study's name for a variant of it.
        among: all names of the study, in its order. Methods look the same in every study; variants
            take the looks that are left.
    """
    known = list(METHODS)
    if method in known:
        place = known.index(method)
    else:
        taken = {known.index(name) for name in among if name in known}
        others = [name for name in among if name not in known]
        free = (place for place in count() if place not in taken)
        turn = others.index(method) if method in others else 0
        place = next(islice(free, turn, None))
    n, again = place % len(_COLOURS), place // len(_COLOURS)
    # When the colours are used up, they come again with other markers and dashes.
    m = (n + again) % len(_COLOURS)
    return {"color": _COLOURS[n], "marker": _MARKERS[m], "linestyle": _DASHES[m], "markersize": 5}


def new_figure(width: float = 5.2, height: float = 3.6) -> Figure:
    """An empty figure without a window; the size is in inches."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def head(figure: Figure, title: str) -> None:
    """Write a title over all panels, in several lines if it is long."""
    lines = textwrap.fill(title, int(figure.get_figwidth() / 0.08))  # inches per letter
    figure.suptitle(lines, x=0.01, ha="left", fontsize=_SIZE + 1)


def dress(axes: Axes, title: str, x: str, y: str) -> None:
    """Set the title, the labels and a plain frame."""
    axes.set_title(title, loc="left", fontsize=_SIZE + 1)
    axes.set_xlabel(x, fontsize=_SIZE + 1)
    axes.set_ylabel(y, fontsize=_SIZE + 1)
    axes.tick_params(labelsize=_SIZE)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="#e3e3e3", linewidth=0.6)
    axes.set_axisbelow(True)


def legend(figure: Figure, axes: Axes) -> None:
    """Add a legend of everything in the axes, below the figure, where it hides nothing."""
    legend_below(figure, *axes.get_legend_handles_labels())


def legend_below(figure: Figure, handles: Sequence[Any], labels: Sequence[str]) -> None:
    """Add a legend of these handles, in as many columns as fit."""

    def width(columns: int) -> float:
        parts = np.array_split([len(label) for label in labels], columns)
        return sum(0.6 + 0.075 * float(part.max()) for part in parts)  # inches

    fitting = [n for n in range(1, len(labels) + 1) if width(n) <= figure.get_figwidth()]
    columns = max(fitting, default=1)
    rows = math.ceil(len(labels) / columns)
    # A long legend makes the figure taller, not the axes smaller.
    figure.set_figheight(figure.get_figheight() + _LEGEND_ROW * max(0, rows - _FEW_ROWS))
    figure.legend(
        handles, labels, loc="outside lower center", ncols=columns, frameon=False, fontsize=_SIZE
    )


def unit(metric: str) -> float:
    """The factor for showing a value of a metric: 100 for percent, else 1."""
    return 100.0 if in_percent(metric) else 1.0


def metric_name(metric: str) -> str:
    """The name of a metric as a reader knows it."""
    return _METRIC_NAMES.get(metric, metric.replace("_", " "))


def axis_label(metric: str) -> str:
    """The name of a metric with its unit."""
    name = metric_name(metric)
    return f"{name}, %" if in_percent(metric) else name


def stretch(axes: Axes, which: Literal["x", "y"]) -> None:
    """Give an axis equal steps for equal ratios, with ticks that are plain numbers."""
    (axes.set_xscale if which == "x" else axes.set_yscale)("log")
    axis = axes.xaxis if which == "x" else axes.yaxis
    # Numbers beside each other need more room than numbers below each other.
    axis.set_major_locator(LogLocator(subs=(1.0, 3.0) if which == "x" else (1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axis.set_minor_locator(NullLocator())


def save(figure: Figure, stem: Path) -> list[Path]:
    """Write a figure in every format; the same figure gives identical files."""
    written = []
    settings: Any = {"svg.hashsalt": "headcount", "svg.fonttype": "none", "pdf.fonttype": 42}
    with mpl.rc_context(settings):
        figure.draw_without_rendering()
        figure.set_layout_engine("none")  # it was laid out above, once for all formats
        for ending in FORMATS:
            path = stem.with_name(f"{stem.name}.{ending}")
            date = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(ending)
            draw = partial(figure.savefig, format=ending, dpi=200, metadata=date)
            write_atomically(path, draw)
            written.append(path)
    return written
