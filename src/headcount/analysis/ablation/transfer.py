"""Are the same heads important on other data? (Michel et al. 2019, Section 3.4, Fig. 2)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.stats import pearsonr

from headcount.analysis.ablation.one import ALPHA, AblateOne, Effect, ablate_one
from headcount.analysis.ablation.subject import Subject, chosen_set
from headcount.analysis.ablation.task_subject import subject_of
from headcount.analysis.base import Analysis
from headcount.errors import HeadcountError
from headcount.plots.style import BLUE, GREY, RED, axis_label, dress, legend, new_figure, unit
from headcount.runs.settings import RunSettings

NAMED = 5  # heads of each set that count as its most important ones
_LABELLED = 6  # heads that the figure names


@dataclass(frozen=True)
class AblateTransfer(Analysis):
    """Every head closed alone, on two evaluation sets.

    Attributes:
        first: the ablation on one set.
        second: the ablation on the other set.
        pearson: correlation of the two changes, over the heads.
        p_value: p-value of the test that there is no correlation.
    """

    kind: ClassVar[str] = "ablate-transfer"

    first: AblateOne
    second: AblateOne
    pearson: float
    p_value: float

    @property
    def title(self) -> str:
        one, two = self.first, self.second
        return f"{one.model}: {one.metric} without each head, {one.split} and {two.split}"

    @property
    def note(self) -> str:
        tops = [found.dearest(NAMED) for found in (self.first, self.second)]
        names = [[effect.name for effect in top] for top in tops]
        both = [name for name in names[0] if name in names[1]]
        listed = "; ".join(
            f"on {found.split} {', '.join(some) or 'none'}"
            for found, some in zip((self.first, self.second), names, strict=True)
        )
        return (
            f"Pearson's r of the changes on both sets over {len(self.first.effects)} heads is "
            f"{self.pearson:.2f} (p = {self.p_value:.2g}); {self.first.examples} and "
            f"{self.second.examples} examples. The heads whose loss costs most are {listed}; "
            + (f"in both: {', '.join(both)}." if both else "none is in both lists.")
        )

    def top(self) -> list[tuple[Effect, Effect]]:
        """The heads that are among the most important on either set."""
        pairs = {e.name: (e, o) for e, o in zip(*self._effects(), strict=True)}
        names = [e.name for f in (self.first, self.second) for e in f.dearest(NAMED)]
        return [pairs[name] for name in dict.fromkeys(names)]

    def _effects(self) -> tuple[tuple[Effect, ...], tuple[Effect, ...]]:
        return self.first.effects, self.second.effects

    def table(self) -> pd.DataFrame:
        one, two = self.first, self.second
        scale = unit(one.metric)
        return pd.DataFrame(
            {
                "head": [e.name for e in one.effects],
                f"change, {one.split}": [scale * e.change for e in one.effects],
                f"change, {two.split}": [scale * e.change for e in two.effects],
                f"p, {one.split}": [e.p_value for e in one.effects],
                f"p, {two.split}": [e.p_value for e in two.effects],
            }
        )

    def figures(self) -> Mapping[str, Figure]:
        return {"transfer": draw_transfer(self)}


def ablate_transfer(
    given: Subject | RunSettings,
    other: Subject | RunSettings | None = None,
    alpha: float = ALPHA,
) -> AblateTransfer:
    """Close each head alone on two evaluation sets, and correlate what it costs.

    Args:
        given: the model with its evaluation sets, or the settings of a run with a fine-tuned model.
        other: the same model on other data with the same labels; its first set is compared. None
            compares the first two sets of `given`.
        alpha: significance level; a p-value below it counts as a real difference.
    """
    subject = subject_of(given)
    second = subject if other is None else subject_of(other)
    if other is None and len(subject.sets) < 2:
        raise HeadcountError(
            f"there is one evaluation set, {subject.sets[0]}, but two are compared; name another "
            "with --evaluate, or other data with --other-data"
        )
    if second.heads.layout != subject.heads.layout or second.metric != subject.metric:
        raise HeadcountError(
            f"{subject.name} is measured by {subject.metric} and {second.name} by {second.metric}, "
            "or they have other heads; compare one model by one metric"
        )
    one = ablate_one(subject, alpha=alpha)
    two = ablate_one(second, chosen_set(second, None, 1 if other is None else 0), alpha)
    changes = [[e.change for e in found.effects] for found in (one, two)]
    if any(len(set(row)) < 2 for row in changes):
        raise HeadcountError(
            "on one of the sets no head makes a difference, so there is nothing to correlate; "
            "evaluate more examples"
        )
    if subject.data != second.data:  # both may have a set of the same name
        one = replace(one, split=f"{subject.data} {one.split}")
        two = replace(two, split=f"{second.data} {two.split}")
    found = pearsonr(*changes)
    return AblateTransfer(one, two, float(found.statistic), float(found.pvalue))


def draw_transfer(found: AblateTransfer) -> Figure:
    """A point per head: the metric on both sets without it (Fig. 2)."""
    one, two = found.first, found.second
    scale = unit(one.metric)
    figure = new_figure(4.8, 4.2)
    axes = figure.subplots()
    axes.axvline(scale * one.whole, color=GREY, linestyle="--", linewidth=1)
    axes.axhline(scale * two.whole, color=GREY, linestyle="--", linewidth=1)
    # Small sets have few values of a metric, so that many heads are on one point.
    points = Counter(
        (scale * a.value, scale * b.value) for a, b in zip(one.effects, two.effects, strict=True)
    )
    x, y = zip(*points, strict=True)
    axes.scatter(
        x, y, s=[18 * count for count in points.values()], color=BLUE, alpha=0.6,
        edgecolors="none", label="heads, as many as the area",
    )  # fmt: skip
    axes.scatter(
        [scale * one.whole], [scale * two.whole], marker="*", s=130, color=RED, zorder=4,
        label="unpruned",
    )  # fmt: skip
    _name_heads(axes, found, scale)
    axes.margins(0.12, 0.12)
    axes.set_xlim(right=axes.get_xlim()[1] + 0.1 * np.ptp(axes.get_xlim()))  # for the names
    metric = axis_label(one.metric)
    r = f"{found.pearson:.2f}".replace("-", "−")
    title = f"{one.model}: without one of {len(one.effects)} heads, r = {r}"
    dress(axes, title, f"{metric}, {one.split}", f"{metric}, {two.split}")
    legend(figure, axes)
    return figure


def _name_heads(axes: Axes, found: AblateTransfer, scale: float) -> None:
    """Write the names of the most important heads, those of one point below each other."""
    names: dict[tuple[float, float], list[str]] = {}
    for a, b in found.top()[:_LABELLED]:
        names.setdefault((scale * a.value, scale * b.value), []).append(a.name)
    for place, some in names.items():
        axes.annotate(
            "\n".join(some), place, xytext=(5, -4), textcoords="offset points", fontsize=8,
            va="top",
        )  # fmt: skip
