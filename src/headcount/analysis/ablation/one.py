"""What is lost without each head alone (Michel et al. 2019, Section 3.2, Table 1, Fig. 1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from headcount.analysis.ablation.subject import Subject
from headcount.analysis.ablation.task_subject import subject_of
from headcount.analysis.base import Analysis
from headcount.errors import HeadcountError
from headcount.heads.mask import HeadMask
from headcount.plots.style import axis_label, unit
from headcount.runs.settings import RunSettings
from headcount.stats.numbers import shown
from headcount.stats.significance import holm

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

ALPHA = 0.01  # Michel et al. underline what is below
_NAMED = 5  # heads that the note names


@dataclass(frozen=True)
class Effect:
    """Of closing one head.

    Attributes:
        block: of the head.
        head: its number in the block.
        value: the metric without it.
        change: from the unpruned model, in the metric's unit.
        p_value: of the paired test of both.
    """

    block: str
    head: int
    value: float
    change: float
    p_value: float

    @property
    def name(self) -> str:
        """As `HeadMap` has it."""
        return f"{self.block}.{self.head}"


@dataclass(frozen=True)
class AblateOne(Analysis):
    """Every head closed alone.

    Attributes:
        model: its name.
        task: its name.
        split: the evaluation set.
        examples: in it.
        metric: that decides.
        greater_is_better: of the metric.
        whole: the metric of the unpruned model.
        effects: of the heads, in their order.
        alpha: level of the tests.
        least: the smallest p-value that the tests can tell; 0 where they are exact.
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
        """Heads whose test is below alpha, with Holm's correction or without."""
        p_values = [e.p_value for e in self.effects]
        raised = holm(p_values) if corrected else p_values
        return [e for e, p in zip(self.effects, raised, strict=True) if p < self.alpha]

    def ranked(self) -> list[Effect]:
        """The heads by what their absence costs, the dearest first."""
        sign = 1.0 if self.greater_is_better else -1.0
        return sorted(self.effects, key=lambda e: sign * e.change)

    def dearest(self, number: int) -> list[Effect]:
        """The first of `ranked`, as far as their absence costs anything."""
        sign = 1.0 if self.greater_is_better else -1.0
        return [e for e in self.ranked()[:number] if sign * e.change < 0]

    def blocks(self) -> dict[str, list[Effect]]:
        """The heads of each block."""
        found: dict[str, list[Effect]] = {}
        for effect in self.effects:
            found.setdefault(effect.block, []).append(effect)
        return found

    def table(self) -> pd.DataFrame:
        import pandas as pd

        blocks = self.blocks()
        columns = sorted({e.head for e in self.effects})
        scale = unit(self.metric)
        rows = [
            {"block": name, **{str(e.head): scale * e.change for e in effects}}
            for name, effects in blocks.items()
        ]
        return pd.DataFrame(rows, columns=["block", *map(str, columns)])

    def figures(self) -> Mapping[str, Figure]:
        from headcount.analysis.figures.ablation import draw_histogram, draw_map

        return {"heads": draw_map(self), "histogram": draw_histogram(self)}


def ablate_one(
    given: Subject | RunSettings, split: str | None = None, alpha: float = ALPHA
) -> AblateOne:
    """Close each head alone and compare with the unpruned model, example by example.

    Args:
        given: a model with evaluation sets, or the settings of a run with a fine-tuned one.
        split: the evaluation set; None for the first.
        alpha: level of the tests.
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


def too_coarse(tests: int, least: float, alpha: float) -> str:
    """What to say of Holm's correction where no p-value could survive it; else nothing."""
    if tests * least < alpha:
        return ""
    return f", which none can be: their resamples tell no p-value below {least:.1g}"


def chosen_set(subject: Subject, split: str | None, place: int = 0) -> str:
    """The evaluation set of that name, or the one at that place."""
    names: Sequence[str] = subject.sets
    if split is None:
        return names[place]
    if split not in names:
        raise HeadcountError(
            f"there is no evaluation set {split!r}; this task has {', '.join(names)}"
        )
    return split


def _signed(found: AblateOne, change: float) -> str:
    return f"{unit(found.metric) * change:+.2f}".replace("-", "−")
