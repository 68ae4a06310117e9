"""What is lost without each head alone (Michel et al. 2019, Section 3.2, Table 1, Fig. 1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from headcount.analysis.ablation.subject import Subject, chosen_set
from headcount.analysis.ablation.task_subject import subject_of
from headcount.analysis.base import Analysis
from headcount.heads.mask import HeadMask
from headcount.plots.style import BLUE, RED, axis_label, dress, new_figure, unit
from headcount.runs.settings import RunSettings
from headcount.stats.numbers import shown
from headcount.stats.resampling import Array
from headcount.stats.significance import holm

ALPHA = 0.01  # Michel et al. underline what is below
_NAMED = 5  # heads that the note names
_MOST_WRITTEN = 16  # heads per block; with more, numbers in the cells would be too small to read


@dataclass(frozen=True)
class Effect:
    """What closing one head changes.

    Attributes:
        block: name of the head's block.
        head: number of the head in its block.
        value: the metric without the head.
        change: difference from the unpruned model, in the metric's unit.
        p_value: p-value of the paired test against the unpruned model.
    """

    block: str
    head: int
    value: float
    change: float
    p_value: float

    @property
    def name(self) -> str:
        """The head's name, as in `HeadMap`: `encoder.3.7`."""
        return f"{self.block}.{self.head}"


@dataclass(frozen=True)
class AblateOne(Analysis):
    """Every head closed alone.

    Attributes:
        model: name of the model.
        task: name of the task.
        split: name of the evaluation set.
        examples: number of examples in it.
        metric: name of the metric.
        greater_is_better: whether a larger value of the metric is better.
        whole: the metric of the unpruned model.
        effects: one per head, in the order of the heads.
        alpha: significance level of the tests.
        least: the smallest p-value that the tests can give; 0 if they are exact.
    """

    kind: ClassVar[str] = "ablate-one"

    model: str
    task: str
    split: str
    examples: int
    metric: str
    greater_is_better: bool
    whole: float
    effects: tuple[Effect, ...]
    alpha: float = ALPHA
    least: float = 0.0

    @property
    def title(self) -> str:
        return f"{self.model}, {self.task}, {self.split}: {self.metric} without each head alone"

    @property
    def note(self) -> str:
        low, high = self.significant(), self.significant(corrected=True)
        named = ", ".join(f"{e.name} ({_signed(self, e.change)})" for e in self.dearest(_NAMED))
        return (
            f"Change of {axis_label(self.metric)} when one head is closed, from "
            f"{shown(self.metric, self.whole)} of the unpruned model on {self.examples} examples. "
            f"Of {len(self.effects)} paired tests, {len(low)} are below {self.alpha:g}, where "
            f"chance alone gives about {len(self.effects) * self.alpha:.1f}; {len(high)} are after "
            f"Holm's correction{too_coarse(len(self.effects), self.least, self.alpha)}. The heads "
            f"whose loss costs most: {named or 'none costs anything'}."
        )

    def significant(self, corrected: bool = False) -> list[Effect]:
        """The heads with a p-value below alpha, with or without Holm's correction."""
        p_values = [e.p_value for e in self.effects]
        raised = holm(p_values) if corrected else p_values
        return [e for e, p in zip(self.effects, raised, strict=True) if p < self.alpha]

    def ranked(self) -> list[Effect]:
        """All heads, the one whose absence costs most first."""
        sign = 1.0 if self.greater_is_better else -1.0
        return sorted(self.effects, key=lambda e: sign * e.change)

    def dearest(self, number: int) -> list[Effect]:
        """The first heads of `ranked`, without those whose absence costs nothing."""
        sign = 1.0 if self.greater_is_better else -1.0
        return [e for e in self.ranked()[:number] if sign * e.change < 0]

    def blocks(self) -> dict[str, list[Effect]]:
        """The heads of each block."""
        found: dict[str, list[Effect]] = {}
        for effect in self.effects:
            found.setdefault(effect.block, []).append(effect)
        return found

    def table(self) -> pd.DataFrame:
        blocks = self.blocks()
        columns = sorted({e.head for e in self.effects})
        scale = unit(self.metric)
        rows = [
            {"block": name, **{str(e.head): scale * e.change for e in effects}}
            for name, effects in blocks.items()
        ]
        return pd.DataFrame(rows, columns=["block", *map(str, columns)])

    def figures(self) -> Mapping[str, Figure]:
        return {"heads": draw_map(self), "histogram": draw_histogram(self)}


def ablate_one(
    given: Subject | RunSettings, split: str | None = None, alpha: float = ALPHA
) -> AblateOne:
    """Close each head alone and compare with the unpruned model, example by example.

    Args:
        given: the model with its evaluation sets, or the settings of a run with a fine-tuned model.
        split: name of the evaluation set; None takes the first.
        alpha: significance level; a p-value below it counts as a real difference.
    """
    subject = subject_of(given)
    name = chosen_set(subject, split)
    everything = HeadMask.all(subject.heads)
    masks = [everything, *(subject.without([index]) for index in subject.heads.indices)]
    whole, *others = subject.evaluate(name, masks)
    value = subject.value(whole)
    places = [(b.name, head) for b in subject.heads.blocks for head in b.heads]
    tests = subject.compared(name, whole, others, alpha)
    effects = tuple(
        Effect(block, head, subject.value(other), subject.value(other) - value, test.p_value)
        for (block, head), other, test in zip(places, others, tests, strict=True)
    )
    return AblateOne(
        subject.name, subject.task, name, len(whole.predictions), subject.metric,
        subject.greater_is_better, value, effects, alpha, max(test.least for test in tests),
    )  # fmt: skip


def draw_map(found: AblateOne) -> Figure:
    """Blocks down, heads across; orange if the model is worse without the head."""
    blocks = found.blocks()
    width = max(e.head for e in found.effects) + 1
    grid = np.full((len(blocks), width), np.nan)
    for row, effects in enumerate(blocks.values()):
        for effect in effects:
            grid[row, effect.head] = unit(found.metric) * effect.change
    most = float(np.nanmax(np.abs(grid))) or 1.0
    figure = new_figure(0.42 * width + 2.4, 0.34 * len(blocks) + 1.6)
    axes = figure.subplots()
    # Orange is worse, whether the metric is to be large or small.
    colours = "PuOr" if found.greater_is_better else "PuOr_r"
    image = axes.imshow(grid, cmap=colours, vmin=-most, vmax=most, aspect="auto")
    _write_changes(axes, found, grid, most)
    _head_axes(axes, width, list(blocks))
    axes.set_title(
        f"{found.model}, {found.split}: change without each head\n"
        f"* p < {found.alpha:g}   ** also after Holm's correction",
        loc="left",
        fontsize=9.5,
    )
    bar = figure.colorbar(image, ax=axes, fraction=0.05)
    bar.set_label(change_label(found.metric), fontsize=9)
    bar.ax.tick_params(labelsize=8)
    return figure


def draw_histogram(found: AblateOne) -> Figure:
    """How many heads leave the model at each value of the metric (Fig. 1)."""
    scale = unit(found.metric)
    values = np.array([scale * e.value for e in found.effects])
    figure = new_figure(5.2, 3.2)
    axes = figure.subplots()
    axes.hist(values, bins=min(40, max(10, len(values) // 4)), color=BLUE, edgecolor="white")
    axes.axvline(scale * found.whole, color=RED, linestyle="--", linewidth=1.6)
    axes.annotate(
        "unpruned", (scale * found.whole, 1), xycoords=("data", "axes fraction"), xytext=(4, -9),
        textcoords="offset points", color=RED, fontsize=9,
    )  # fmt: skip
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    title = f"{found.model}, {found.split}: without one of {len(values)} heads"
    dress(axes, title, axis_label(found.metric), "heads")
    return figure


def too_coarse(tests: int, least: float, alpha: float) -> str:
    """A remark if no p-value can be small enough for Holm's correction; else an empty text."""
    if tests * least < alpha:
        return ""
    return f", which none can be: their resamples tell no p-value below {least:.1g}"


def change_label(metric: str) -> str:
    """The label of an axis with changes of a metric, which are percentage points, not percent."""
    return f"change of {axis_label(metric).replace(', %', ', points')}"


def _signed(found: AblateOne, change: float) -> str:
    return f"{unit(found.metric) * change:+.2f}".replace("-", "−")


def _write_changes(axes: Axes, found: AblateOne, grid: Array, most: float) -> None:
    """Write the change and the stars of its test into every cell."""
    sure = {e.name for e in found.significant(corrected=True)}
    low = {e.name for e in found.significant()}
    for row, effects in enumerate(found.blocks().values()):
        for effect in effects:
            value = grid[row, effect.head]
            mark = "**" if effect.name in sure else "*" if effect.name in low else ""
            text = f"{_short(value)}{mark}" if grid.shape[1] <= _MOST_WRITTEN else mark
            colour = "white" if abs(value) > 0.7 * most else "black"
            axes.text(
                effect.head, row, text, ha="center", va="center", fontsize=7, color=colour,
                fontweight="bold" if mark else "normal",
            )  # fmt: skip


def _short(value: float) -> str:
    digits = 1 if abs(value) < 99.95 else 0
    text = f"{value:.{digits}f}".replace("-", "−")
    return "0" if float(f"{value:.{digits}f}") == 0 else text


def _head_axes(axes: Axes, width: int, blocks: list[str]) -> None:
    axes.set_xlabel("head", fontsize=9)
    axes.set_xticks(range(width))
    axes.set_yticks(range(len(blocks)), blocks)
    axes.tick_params(length=0, labelsize=8)
    axes.spines[:].set_visible(False)
