"""The metric as more and more heads are closed: by order and kind, and along a training."""

from __future__ import annotations

from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from headcount.plots.style import axis_label, dress, legend, new_figure, unit

if TYPE_CHECKING:
    from headcount.analysis.ablation.checkpoints import AblateCheckpoints
    from headcount.analysis.ablation.greedy import AblateGreedy

_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#000000")
_MARKERS = ("o", "s", "^", "D")
_MOST_LINES = 7  # checkpoints, beyond which a colour bar tells them apart instead of a legend


def draw_greedy(found: AblateGreedy) -> Figure:
    """Solid by importance, dashed by ablation (Fig. 3); a colour per kind of attention (Fig. 4)."""
    figure = new_figure(5.2, 3.7)
    axes = figure.subplots()
    scopes = list(dict.fromkeys(curve.scope for curve in found.curves))
    for curve in found.curves:
        place = scopes.index(curve.scope)
        dashed = curve.order == "ablation"
        # With one kind, the colours are free to tell the orders apart.
        look = place if len(scopes) > 1 else int(dashed)
        axes.plot(
            [point.share for point in curve.points],
            [unit(found.metric) * point.value for point in curve.points],
            color=_COLOURS[look % len(_COLOURS)], marker=_MARKERS[look % len(_MARKERS)],
            markersize=5, linestyle="--" if dashed else "-",
            markerfacecolor="white" if dashed else None,
            label=f"{curve.scope} heads, by {curve.order}",
        )  # fmt: skip
    title = f"{found.model}, {found.split}: the least important heads closed"
    dress(axes, title, "heads closed", axis_label(found.metric))
    _share_axis(axes)
    legend(figure, axes)
    return figure


def draw_checkpoints(found: AblateCheckpoints) -> Figure:
    """A line per checkpoint, the later the darker (Fig. 5, right)."""
    figure = new_figure(5.2, 3.9)
    axes = figure.subplots()
    colours = mpl.colormaps["viridis_r"](np.linspace(0.1, 1, len(found.moments)))
    few = len(found.moments) <= _MOST_LINES
    for place, moment in enumerate(found.moments):
        axes.plot(
            [point.share for point in moment.points],
            [found.relative(moment, point) for point in moment.points],
            color=colours[place], marker=_MARKERS[place % len(_MARKERS)], markersize=4,
            label=f"{moment.name} [{unit(found.metric) * moment.whole:.1f}]",
        )  # fmt: skip
    title = f"{found.task}, {found.split}: the least important heads closed"
    dress(axes, title, "heads closed", f"% of unpruned {_plain(found.metric)}")
    _share_axis(axes)
    if few:
        legend(figure, axes)
    else:
        shades = mpl.cm.ScalarMappable(mpl.colors.Normalize(1, len(found.moments)), "viridis_r")
        figure.colorbar(shades, ax=axes, label="checkpoint", fraction=0.05)
    return figure


def draw_training(found: AblateCheckpoints) -> Figure:
    """A line per share of closed heads, along the training (Fig. 5, left)."""
    shares = [point.share for point in found.moments[0].points]
    chosen = [place for place, share in enumerate(shares) if round(10 * share) in (2, 4, 6, 8)]
    figure = new_figure(5.2, 3.7)
    axes = figure.subplots()
    for look, place in enumerate(chosen):
        axes.plot(
            range(len(found.moments)),
            [found.relative(moment, moment.points[place]) for moment in found.moments],
            color=_COLOURS[look % len(_COLOURS)], marker=_MARKERS[look % len(_MARKERS)],
            markersize=5, label=f"{shares[place]:.0%} closed",
        )  # fmt: skip
    title = f"{found.task}, {found.split}: heads closed, along a training"
    dress(axes, title, "checkpoint", f"% of unpruned {_plain(found.metric)}")
    names = [f"{m.name.removeprefix('checkpoint-')}" for m in found.moments]
    axes.set_xticks(range(len(names)), names, rotation=40 if len(names) > 6 else 0)
    legend(figure, axes)
    return figure


def _share_axis(axes: Axes) -> None:
    axes.set_xlim(-0.02, 1.02)
    axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))


def _plain(metric: str) -> str:
    return axis_label(metric).removesuffix(", %")
