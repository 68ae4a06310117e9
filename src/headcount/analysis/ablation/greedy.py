"""How far can heads be closed, least important first? (Michel et al. 2019, Sections 4 and 5)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, get_args

import torch
from torch import Tensor

from headcount.analysis.ablation.one import ablate_one, chosen_set
from headcount.analysis.ablation.subject import Subject
from headcount.analysis.ablation.task_subject import subject_of
from headcount.analysis.base import Analysis
from headcount.errors import HeadcountError
from headcount.heads.blocks import Kind
from headcount.plots.style import axis_label, unit
from headcount.pruners.choice import Scope, choose
from headcount.runs.settings import RunSettings
from headcount.stats.numbers import shown

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

Order = Literal["importance", "ablation"]
STEP = 0.1  # of the heads


@dataclass(frozen=True)
class Point:
    """So many heads closed.

    Attributes:
        share: of the heads that the curve is about.
        heads: how many.
        value: the metric.
    """

    share: float
    heads: int
    value: float


@dataclass(frozen=True)
class Curve:
    """Heads closed in one order.

    Attributes:
        order: by gradient importance, or by what closing each alone costs.
        scope: "all", or the kind of attention whose heads are closed.
        points: from none closed to all.
    """

    order: Order
    scope: str
    points: tuple[Point, ...]


@dataclass(frozen=True)
class AblateGreedy(Analysis):
    """The metric against the share of closed heads.

    Attributes:
        model: its name.
        task: its name.
        split: the evaluation set.
        examples: in it.
        metric: that decides.
        greater_is_better: of the metric.
        curves: one for each order and scope.
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
        import pandas as pd

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
        from headcount.analysis.figures.ablation_curves import draw_greedy

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
        given: a model with evaluation sets, or the settings of a run with a fine-tuned one.
        kinds: close heads of these kinds of attention, one kind at a time; all heads if empty.
        step: share of the heads that is closed between two points.
        by_ablation: also in the order of what closing each head alone costs, which takes an
            evaluation per head.
        split: the evaluation set; None for the first.
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


def steps(step: float) -> list[float]:
    """Shares from 0 to 1."""
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


def _scopes(subject: Subject, kinds: Sequence[str]) -> dict[str, Scope]:
    there = {block.kind for block in subject.heads.blocks}
    for kind in kinds:
        if kind not in there:
            known = ", ".join(k for k in get_args(Kind) if k in there)
            raise HeadcountError(
                f"there are no heads of the kind {kind!r} in {subject.name}; it has {known}"
            )
    return {kind: Scope(kinds=(kind,)) for kind in kinds} or {"all": Scope()}
