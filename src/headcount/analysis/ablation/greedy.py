"""How far can heads be closed, least important first? (Michel et al. 2019, Sections 4 and 5)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter
from torch import Tensor

from headcount.analysis.ablation.one import ablate_one
from headcount.analysis.ablation.subject import Subject, chosen_set
from headcount.analysis.ablation.task_subject import subject_of
from headcount.analysis.base import Analysis
from headcount.errors import HeadcountError
from headcount.heads.blocks import Kind
from headcount.plots.style import BLUE, GREEN, RED, axis_label, dress, legend, new_figure, unit
from headcount.pruners.choice import Scope, choose
from headcount.runs.settings import RunSettings
from headcount.stats.numbers import shown

Order = Literal["importance", "ablation"]
STEP = 0.1  # share of the heads that is closed between two points
COLOURS, MARKERS = (BLUE, RED, GREEN, "#000000"), ("o", "s", "^", "D")


@dataclass(frozen=True)
class Point:
    """The metric with some heads closed.

    Attributes:
        share: share of the heads that are closed, among those that the curve is about.
        heads: number of heads that are closed.
        value: the metric.
    """

    share: float
    heads: int
    value: float


@dataclass(frozen=True)
class Curve:
    """Heads closed in one order.

    Attributes:
        order: by gradient importance, or by what closing each head alone costs.
        scope: "all", or the kind of attention whose heads are closed.
        points: from no head closed to all.
    """

    order: Order
    scope: str
    points: tuple[Point, ...]


@dataclass(frozen=True)
class AblateGreedy(Analysis):
    """The metric against the share of closed heads.

    Attributes:
        model: name of the model.
        task: name of the task.
        split: name of the evaluation set.
        examples: number of examples in it.
        metric: name of the metric.
        greater_is_better: whether a larger value of the metric is better.
        curves: one per order and scope.
    """

    kind: ClassVar[str] = "ablate-greedy"

    model: str
    task: str
    split: str
    examples: int
    metric: str
    greater_is_better: bool
    curves: tuple[Curve, ...]

    @property
    def title(self) -> str:
        return f"{self.model}, {self.task}, {self.split}: {self.metric} as heads are closed"

    @property
    def note(self) -> str:
        whole = self.curves[0].points[0].value
        kept = "; ".join(
            f"{curve.scope} heads by {curve.order} {self._within(curve):.0%}"
            for curve in self.curves
        )
        oracle = (
            " The order by ablation knows the reported set: it is an oracle."
            if any(curve.order == "ablation" for curve in self.curves)
            else ""
        )
        return (
            f"Heads closed by masks, the least important first; {self.examples} examples, "
            f"{shown(self.metric, whole)} unpruned. Importance is scored once, on training data."
            f"{oracle} So many can be closed with at most a tenth of the metric lost: {kept}."
        )

    def _within(self, curve: Curve) -> float:
        whole = curve.points[0].value
        share = 0.0
        for point in curve.points:
            good = point.value >= 0.9 * whole if self.greater_is_better else (
                point.value <= whole / 0.9
            )  # fmt: skip
            if not good:
                break
            share = point.share
        return share

    def table(self) -> pd.DataFrame:
        rows = [(curve, point) for curve in self.curves for point in curve.points]
        return pd.DataFrame(
            {
                "heads": [curve.scope for curve, _ in rows],
                "order": [curve.order for curve, _ in rows],
                "share closed": [point.share for _, point in rows],
                "closed": [point.heads for _, point in rows],
                axis_label(self.metric): [unit(self.metric) * point.value for _, point in rows],
            }
        )

    def figures(self) -> Mapping[str, Figure]:
        return {"greedy": draw_greedy(self)}


def ablate_greedy(
    given: Subject | RunSettings,
    kinds: Sequence[str] = (),
    step: float = STEP,
    by_ablation: bool = True,
    split: str | None = None,
) -> AblateGreedy:
    """Close more and more heads in the order of their importance.

    Args:
        given: the model with its evaluation sets, or the settings of a run with a fine-tuned model.
        kinds: kinds of attention whose heads are closed, one kind at a time; empty means all heads.
        step: share of the heads that is closed between two points; smaller gives a finer curve.
        by_ablation: also close heads in the order of what closing each alone costs. This takes one
            evaluation per head; turn it off to save time.
        split: name of the evaluation set; None takes the first.
    """
    subject = subject_of(given)
    scopes = _scopes(subject, kinds)
    shares = steps(step)
    name = chosen_set(subject, split)
    orders: dict[Order, Tensor] = {"importance": subject.importance()}
    if by_ablation:
        found = ablate_one(subject, name)
        costs = [subject.better_by(found.whole, e.value) for e in found.effects]
        orders["ablation"] = torch.tensor(costs, dtype=torch.float64)
    curves, examples = [], 0
    for scope_name, scope in scopes.items():
        for order, scores in orders.items():
            points, examples = curve_points(subject, name, scores, scope, shares)
            curves.append(Curve(order, scope_name, points))
    return AblateGreedy(
        subject.name, subject.task, name, examples, subject.metric, subject.greater_is_better,
        tuple(curves),
    )  # fmt: skip


def _scopes(subject: Subject, kinds: Sequence[str]) -> dict[str, Scope]:
    there = {block.kind for block in subject.heads.blocks}
    for kind in kinds:
        if kind not in there:
            known = ", ".join(k for k in get_args(Kind) if k in there)
            raise HeadcountError(
                f"there are no heads of the kind {kind!r} in {subject.name}; it has {known}"
            )
    return {kind: Scope(kinds=(kind,)) for kind in kinds} or {"all": Scope()}


def steps(step: float) -> list[float]:
    """The shares of heads to close, from 0 to 1."""
    if not 0 < step <= 1:
        raise HeadcountError(
            f"the step is {step}, expected a share of the heads; give one between 0 and 1, as 0.1"
        )
    number = math.ceil(1 / step - 1e-9)  # the last one may be smaller
    return [min(1.0, place * step) for place in range(number)] + [1.0]


def curve_points(
    subject: Subject, split: str, scores: Tensor, scope: Scope, shares: Sequence[float]
) -> tuple[tuple[Point, ...], int]:
    """The metric with these shares of the scope's heads closed, and the number of examples."""
    number = len(scope.positions(subject.heads))
    closed = list(dict.fromkeys(round(share * number) for share in shares))
    masks = [choose(subject.heads, scope, scores, number - count) for count in closed]
    found = subject.evaluate(split, masks)
    points = tuple(
        Point(count / number, count, subject.value(one))
        for count, one in zip(closed, found, strict=True)
    )
    return points, len(found[0].predictions)


def draw_greedy(found: AblateGreedy) -> Figure:
    """Solid by importance, dashed by ablation (Fig. 3); a colour per kind of attention (Fig. 4)."""
    figure = new_figure(5.2, 3.7)
    axes = figure.subplots()
    scopes = list(dict.fromkeys(curve.scope for curve in found.curves))
    for curve in found.curves:
        place = scopes.index(curve.scope)
        dashed = curve.order == "ablation"
        # With one scope, the colours can show the orders instead.
        look = place if len(scopes) > 1 else int(dashed)
        axes.plot(
            [point.share for point in curve.points],
            [unit(found.metric) * point.value for point in curve.points],
            color=COLOURS[look % len(COLOURS)], marker=MARKERS[look % len(MARKERS)],
            markersize=5, linestyle="--" if dashed else "-",
            markerfacecolor="white" if dashed else None,
            label=f"{curve.scope} heads, by {curve.order}",
        )  # fmt: skip
    title = f"{found.model}, {found.split}: the least important heads closed"
    dress(axes, title, "heads closed", axis_label(found.metric))
    share_axis(axes)
    legend(figure, axes)
    return figure


def share_axis(axes: Axes) -> None:
    """Show the share of closed heads across, in percent."""
    axes.set_xlim(-0.02, 1.02)
    axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
