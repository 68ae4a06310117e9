"""Draw the figures of `docs/understand/`: a gate, soft top-K, a cut.

python docs/figures.py
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import matplotlib as mpl
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Rectangle

from headcount.atomic import write_atomically
from headcount.plots.style import BLUE, GREY, RED, dress, new_figure
from headcount.pruners.top_k import soft_top_k

FOLDER = Path(__file__).parent / "understand" / "figures"
LIGHT = "#e3e3e3"
HEADS = (True, False, True, True)


def box(
    axes: Axes, x: float, y: float, width: float, height: float, colour: str, text: str
) -> None:
    """A filled rectangle with a word in it."""
    axes.add_patch(Rectangle((x, y), width, height, facecolor=colour, edgecolor="white"))
    ink = "white" if colour in (BLUE, RED, GREY) else GREY
    axes.text(x + width / 2, y + height / 2, text, ha="center", va="center", color=ink, fontsize=9)


def arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], colour: str) -> None:
    """An arrow from one place to another."""
    style = {"arrowstyle": "-|>", "mutation_scale": 9, "color": colour, "linewidth": 1.3}
    axes.add_patch(FancyArrowPatch(start, end, shrinkA=0, shrinkB=0, **style))


def empty(width: float, height: float, to_x: float, to_y: float) -> tuple[Figure, Axes]:
    """A figure without axes, in units of its own."""
    figure = new_figure(width, height)
    axes = figure.add_subplot()
    axes.set_xlim(0, to_x)
    axes.set_ylim(0, to_y)
    axes.set_axis_off()
    return figure, axes


def gate() -> Figure:
    """Heads, their gates, and the output projection."""
    figure, axes = empty(6.4, 2.7, 12.6, 5.2)
    for place, is_open in enumerate(HEADS):
        y = 3.9 - place * 1.2
        colour = BLUE if is_open else LIGHT
        line = BLUE if is_open else "#bbbbbb"
        box(axes, 1.2, y, 1.8, 0.9, colour, f"head {place}")
        arrow(axes, (3.0, y + 0.45), (4.4, y + 0.45), line)
        box(axes, 4.4, y + 0.05, 1.5, 0.8, BLUE if is_open else RED, f"× {int(is_open)}")
        arrow(axes, (5.9, y + 0.45), (7.6, y + 0.45), line)
    box(axes, 7.6, 0.3, 2.6, 4.5, GREY, "output\nprojection")
    arrow(axes, (10.2, 2.55), (11.6, 2.55), GREY)
    axes.text(11.7, 2.55, "out", va="center", fontsize=9, color=GREY)
    axes.text(0.9, 2.55, "in", va="center", ha="right", fontsize=9, color=GREY)
    axes.text(5.15, 4.95, "gates", ha="center", fontsize=9, color=GREY)
    return figure


def top_k() -> Figure:
    """Gates of eight heads at three temperatures; they sum to three."""
    figure = new_figure(6.4, 2.3)
    scores = torch.tensor([2.0, 0.3, 1.4, -0.6, 0.9, -1.1, 0.6, -0.2])
    for place, temperature in enumerate((20.0, 0.7, 0.02), start=1):
        axes = figure.add_subplot(1, 3, place)
        gates = soft_top_k(scores, 3, temperature).tolist()
        axes.bar(range(8), gates, color=[BLUE if value > 0.5 else "#56b4e9" for value in gates])
        dress(axes, f"temperature {temperature:g}", "head", "gate" if place == 1 else "")
        axes.set_ylim(0, 1.3)
        axes.set_xticks(range(8))
        axes.set_yticks((0, 0.5, 1))
    return figure


def cut() -> Figure:
    """Which rows and columns go with a head."""
    figure, axes = empty(6.4, 2.9, 12.8, 5.8)
    for block, name in enumerate(("query", "key", "value")):
        x = 0.2 + block * 2.3
        for place, is_open in enumerate(HEADS):
            box(axes, x, 3.7 - place, 1.8, 0.92, BLUE if is_open else RED, f"head {place}")
        axes.text(x + 0.9, 0.3, f"{name}, rows", ha="center", va="center", fontsize=9, color=GREY)
    arrow(axes, (7.0, 2.65), (7.9, 2.65), GREY)
    for place, is_open in enumerate(HEADS):
        box(axes, 8.1 + place * 1.15, 0.7, 1.07, 3.9, BLUE if is_open else RED, f"head\n{place}")
    words = {"fontsize": 9, "va": "center"}
    axes.text(10.4, 0.3, "output projection, columns", ha="center", color=GREY, **words)
    axes.text(0.2, 5.2, "red is cut out: head 1, its rows and its columns", color=RED, **words)
    return figure


def main() -> None:
    """Draw all of them; the same numbers give identical files."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    mpl.rcParams["svg.hashsalt"] = "headcount"
    for name, draw in (("gate", gate), ("soft-top-k", top_k), ("cut", cut)):
        save = partial(draw().savefig, format="svg", metadata={"Date": None})
        write_atomically(FOLDER / f"{name}.svg", save)


if __name__ == "__main__":
    main()
