"""Where the kept heads are: how many in each layer, and of each kind of attention.

Every `draw_` function returns a figure, or the reason why there is none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from headcount.heads.mask import HeadMask
from headcount.plots.style import BLUE, GREEN, GREY, RED, dress, head, legend_below, new_figure
from headcount.study.read import Comparison, StudyData

ONE_KIND = "the model has one kind of attention"
_MOST_WRITTEN = 24  # columns; with more, numbers in the cells would be too small to read
_NAMES = {
    "encoder": "encoder self-attention",
    "decoder": "decoder self-attention",
    "cross": "cross-attention",
}
_LOOKS = ((BLUE, "o", "-"), (RED, "s", "--"), (GREEN, "^", "-."))  # of the kinds


def draw_layers(study: StudyData, comparison: Comparison, method: str) -> Figure | str:
    """Layers down, numbers of heads across; darker means that more heads are kept there.

    Args:
        study: the study, which has the masks.
        comparison: the results of one model and task.
        method: name of the method whose runs are drawn, averaged over seeds.
    """
    masks = _kept_masks(study, comparison, method)
    if not masks:
        return f"no readable mask of {method}"
    counts = sorted(masks)
    layout = masks[counts[0]][0].layout
    kinds = _places_by_kind(layout)
    grid = np.array(
        [
            np.mean([[m.counts()[name] for name, _ in layout] for m in masks[k]], axis=0)
            for k in counts
        ]
    ).T
    most = max(born for _, born in layout)
    figure = new_figure(
        max(4.2, 0.42 * len(counts) + 1.9), 0.26 * len(layout) + 0.5 * len(kinds) + 1.0
    )
    panels = figure.subplots(
        len(kinds), 1, sharex=True, squeeze=False,
        height_ratios=[len(places) for places in kinds.values()],
    )[:, 0]  # fmt: skip
    for axes, (kind, places) in zip(panels, kinds.items(), strict=True):
        part = grid[places]
        image = axes.imshow(part, cmap="Blues", vmin=0, vmax=most, aspect="auto")
        axes.set_yticks(range(len(places)), [layout[p][0].rpartition(".")[2] for p in places])
        axes.set_ylabel(f"{kind} layer", fontsize=10)
        axes.tick_params(length=0, labelsize=9)
        axes.spines[:].set_visible(False)
        if len(counts) <= _MOST_WRITTEN:
            for (y, x), value in np.ndenumerate(part):
                colour = "white" if value > 0.6 * most else "black"
                axes.text(x, y, _short(value), ha="center", va="center", fontsize=8, color=colour)
    panels[-1].set_xticks(range(len(counts)), [str(k) for k in counts])
    panels[-1].set_xlabel("kept heads", fontsize=10)
    head(figure, f"{comparison.model}, {comparison.task}: heads that {method} keeps")
    bar = figure.colorbar(image, ax=list(panels), fraction=0.06, ticks=MaxNLocator(integer=True))
    bar.set_label("kept heads per layer", fontsize=10)
    bar.ax.tick_params(labelsize=9)
    return figure


def _short(value: float) -> str:
    return f"{value:.0f}" if value == round(value) else f"{value:.1f}"


def draw_kinds(study: StudyData, comparison: Comparison, method: str) -> Figure | str:
    """Kept heads of each kind against all kept heads: mean and deviation over seeds.

    Args:
        study: the study, which has the masks.
        comparison: the results of one model and task.
        method: name of the method whose runs are drawn.
    """
    masks = _kept_masks(study, comparison, method)
    if not masks:
        return f"no readable mask of {method}"
    layout = next(iter(masks.values()))[0].layout
    kinds = _places_by_kind(layout)
    if len(kinds) < 2:
        return ONE_KIND
    born = {kind: sum(layout[place][1] for place in places) for kind, places in kinds.items()}
    counts = sorted(masks)
    figure = new_figure()
    axes = figure.subplots()
    handles: dict[str, Any] = {}
    for number, (kind, places) in enumerate(kinds.items()):
        names = [layout[place][0] for place in places]
        kept = [
            np.array([sum(mask.counts()[name] for name in names) for mask in masks[k]])
            for k in counts
        ]
        colour, marker, dashes = _LOOKS[number % len(_LOOKS)]
        # All lines end in the unpruned model.
        handles[_NAMES.get(kind, kind)] = axes.errorbar(
            [*counts, sum(born.values())],
            [*(float(of.mean()) for of in kept), float(born[kind])],
            yerr=[*(float(of.std(ddof=1)) if len(of) > 1 else 0.0 for of in kept), 0.0],
            linewidth=1.5, capsize=2.5, color=colour,
            marker=marker, linestyle=dashes, markersize=5,
        )  # fmt: skip
    if len(set(born.values())) == 1:
        ends = [0, sum(born.values())]
        (handles["as many of each"],) = axes.plot(
            ends, [0, ends[1] / len(born)], color=GREY, linewidth=1.0, linestyle=(0, (1, 2))
        )
    head(figure, f"{comparison.model}, {comparison.task}: kinds that {method} keeps")
    dress(axes, "", "kept heads", "kept heads of this kind")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylim(bottom=0)
    legend_below(figure, list(handles.values()), list(handles))
    return figure


def _kept_masks(study: StudyData, comparison: Comparison, method: str) -> dict[int, list[HeadMask]]:
    """The masks of a method's runs, by the number of heads that they keep."""
    masks: dict[int, list[HeadMask]] = {}
    for row in comparison.rows[comparison.rows["method"] == method].itertuples():
        run = study.runs.get(str(row.run))
        if run is not None and run.mask is not None:
            masks.setdefault(len(run.mask), []).append(run.mask)
    return masks


def _places_by_kind(layout: Sequence[tuple[str, int]]) -> dict[str, list[int]]:
    """For each kind of attention, the places of its blocks in the layout."""
    kinds: dict[str, list[int]] = {}
    for place, (name, _) in enumerate(layout):
        kinds.setdefault(name.rpartition(".")[0], []).append(place)
    return kinds
