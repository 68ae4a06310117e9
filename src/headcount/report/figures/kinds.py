"""Which kind of attention is kept: figure 9 of Voita et al. 2019, over numbers of heads."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from headcount.report.figures.layers import kept_masks, places_by_kind
from headcount.report.figures.style import GREY, dress, head, legend_below, new_figure
from headcount.report.study_data import Comparison, StudyData

ONE_KIND = "the model has one kind of attention"
_NAMES = {
    "encoder": "encoder self-attention",
    "decoder": "decoder self-attention",
    "cross": "cross-attention",
}
# Colours of Okabe and Ito, markers and dashes.
_LOOKS = (("#0072b2", "o", "-"), ("#d55e00", "s", "--"), ("#009e73", "^", "-."))


def draw_kinds(study: StudyData, comparison: Comparison, method: str) -> Figure | str:
    """Kept heads of each kind against all kept heads: mean and deviation over seeds.

    Args:
        study: with the masks.
        comparison: of which model and task.
        method: of which the runs are.
    """
    masks = kept_masks(study, comparison, method)
    if not masks:
        return f"no readable mask of {method}"
    layout = next(iter(masks.values()))[0].layout
    kinds = places_by_kind(layout)
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
