"""What `headcount bench` measured: speed-ups beside what their operations allow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure

from headcount.plots.style import GREY, dress, head, legend, look, new_figure

if TYPE_CHECKING:
    from headcount.analysis.speed.models import Bench, Speed
    from headcount.analysis.speed.over_keep import OverKeep


def draw_speeds(bench: Bench) -> Figure:
    """A bar per model and work: the measured speed-up, and a line where the ideal one is."""
    works = list(dict.fromkeys(_place(speed) for speed in bench.speeds))
    names = [size.model for size in bench.sizes][1:] or [bench.sizes[0].model]
    short = _short_names(names)
    figure = new_figure(max(5.2, 1.6 + 0.35 * len(works) * len(names)), 3.8)
    axes = figure.subplots()
    dress(axes, "Speed-up over the unpruned model", "", "speed-up, %")
    width = 0.8 / len(names)
    for turn, name in enumerate(names):
        of = {_place(speed): speed for speed in bench.speeds if speed.model == name}
        speeds = [of[work] for work in works]
        places = np.arange(len(works)) + (turn - (len(names) - 1) / 2) * width
        gains = [_percent(speed.speed_up.median) for speed in speeds]
        spans = [
            [_percent(s.speed_up.median) - _percent(s.speed_up.low) for s in speeds],
            [_percent(s.speed_up.high) - _percent(s.speed_up.median) for s in speeds],
        ]
        style: dict[str, Any] = look(name, names)
        axes.bar(
            places, gains, 0.9 * width, yerr=spans, capsize=2, color=style["color"],
            ecolor=GREY, label=short[turn],
        )  # fmt: skip
        axes.hlines(
            [_percent(speed.ideal) for speed in speeds], places - 0.45 * width,
            places + 0.45 * width, color="black", linewidth=1.5,
            label="ideal by operations" if turn == len(names) - 1 else "_",
        )  # fmt: skip
    axes.axhline(0, color=GREY, linewidth=0.8)
    axes.set_xticks(range(len(works)), [_label(work) for work in works], fontsize=8)
    head(figure, "Measured speed-up, with quartiles")
    legend(figure, axes)
    return figure


def draw_over_keep(found: OverKeep) -> Figure:
    """Speed-up and shrinkage against kept heads, every mask a point."""
    table = found.table()
    figure = new_figure(8.4, 3.6)
    left, right = figure.subplots(1, 2)
    dress(left, "Examples per second", "kept heads", "speed-up, %")
    dress(right, "Number of parameters", "kept heads", "shrinkage, %")
    shapes = list(table.groupby(["batch", "length"], sort=False, dropna=False))
    names = [_shape(*shape) for shape, _ in shapes]
    for name, (_, of) in zip(names, shapes, strict=True):
        style: dict[str, Any] = look(name, names)
        left.plot(
            of["keep"], _percent(of["speed_up"]), linestyle="", marker=style["marker"],
            markersize=2.5, color=style["color"], alpha=0.5,
        )  # fmt: skip
        means = of.groupby("keep")[["speed_up", "ideal_speed_up"]].mean()
        left.plot(means.index, _percent(means["speed_up"]), linewidth=1.5, label=name, **style)
        last = name == names[-1]
        left.plot(
            means.index, _percent(means["ideal_speed_up"]), color=style["color"], linewidth=1,
            linestyle=(0, (1, 2)), label="ideal by operations" if last else "_",
        )  # fmt: skip
    shrunk = table.groupby("keep")["shrinkage"].mean()
    right.plot(shrunk.index, 100 * shrunk, "o-", color=look("joint-dsp")["color"], markersize=4)
    head(figure, f"{found.model}: random heads removed, mean over masks")
    legend(figure, left)
    return figure


def _place(speed: Speed) -> tuple[str, int, int | None]:
    return speed.work, speed.batch, speed.length


def _label(work: tuple[str, int, int | None]) -> str:
    name, batch, length = work
    return f"{name}\nbatch {batch}" + ("" if length is None else f"\nlength {length}")


def _shape(batch: int, length: Any) -> str:
    known = isinstance(length, int | np.integer)
    return f"batch {batch}, length {length}" if known else f"batch {batch}"


def _percent(speed_up: Any) -> Any:
    return 100 * (speed_up - 1)


def _short_names(names: list[str]) -> list[str]:
    """The last parts of paths, where these are different."""
    last = [name.rstrip("/").rsplit("/", 1)[-1] for name in names]
    return last if len(set(last)) == len(last) else names
