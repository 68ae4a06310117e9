"""Is one head per block enough? (Michel et al. 2019, Section 3.3, Tables 2, 3, 5 and 6)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from headcount.analysis.ablation.one import ALPHA, too_coarse
from headcount.analysis.ablation.subject import Subject
from headcount.analysis.ablation.task_subject import subject_of
from headcount.analysis.base import Analysis
from headcount.heads.mask import HeadMask
from headcount.plots.style import axis_label, unit
from headcount.runs.settings import RunSettings
from headcount.stats.numbers import shown
from headcount.stats.significance import holm

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Alone:
    """A block with one head.

    Attributes:
        block: its name.
        heads: how many it has.
        best: the number of the head that is best alone, on the set to choose on.
        chosen_change: of the metric on that set, where it is the best of all heads.
        value: the metric on the set to report.
        change: from the unpruned model there.
        p_value: of the paired test there.
    """

    block: str
    heads: int
    best: int
    chosen_change: float
    value: float
    change: float
    p_value: float


@dataclass(frozen=True)
class AblateAllButOne(Analysis):
    """Every block reduced to its best head, one block at a time.

    Attributes:
        model: its name.
        task: its name.
        chosen_on: the evaluation set that the heads were chosen on.
        split: the one that is reported.
        examples: in it.
        halves: both are halves of one set.
        metric: that decides.
        greater_is_better: of the metric.
        whole: the metric of the unpruned model on the reported set.
        blocks: those with several heads, in their order.
        alpha: level of the tests.
        least: the smallest p-value that the tests can tell; 0 where they are exact.
    """

    kind: ClassVar[str] = "ablate-all-but-one"

    model: str
    task: str
    chosen_on: str
    split: str
    examples: int
    halves: bool
    metric: str
    greater_is_better: bool
    whole: float
    blocks: tuple[Alone, ...]
    alpha: float = ALPHA
    least: float = 0.0

    @property
    def title(self) -> str:
        return f"{self.model}, {self.task}, {self.split}: {self.metric} with one head in a block"

    @property
    def note(self) -> str:
        low = sum(b.p_value < self.alpha for b in self.blocks)
        high = sum(p < self.alpha for p in holm([b.p_value for b in self.blocks]))
        where = (
            "There is one evaluation set: heads were chosen on every other example of it, and the "
            "rest is reported."
            if self.halves
            else f"Heads were chosen on {self.chosen_on}."
        )
        return (
            f"Change of {axis_label(self.metric)} when a block keeps only the head that is best "
            f"alone, from {shown(self.metric, self.whole)} of the unpruned model on "
            f"{self.examples} examples of {self.split}. {where} Of {len(self.blocks)} paired "
            f"tests, {low} are below {self.alpha:g}, {high} after Holm's correction"
            f"{too_coarse(len(self.blocks), self.least, self.alpha)}."
        )

    def table(self) -> pd.DataFrame:
        import pandas as pd

        scale = unit(self.metric)
        return pd.DataFrame(
            {
                "block": [b.block for b in self.blocks],
                "heads": [b.heads for b in self.blocks],
                "best alone": [b.best for b in self.blocks],
                "change where chosen": [scale * b.chosen_change for b in self.blocks],
                axis_label(self.metric): [scale * b.value for b in self.blocks],
                "change": [scale * b.change for b in self.blocks],
                "p": [b.p_value for b in self.blocks],
                "p, Holm": holm([b.p_value for b in self.blocks]),
            }
        )

    def figures(self) -> Mapping[str, Figure]:
        from headcount.analysis.figures.ablation import draw_all_but_one

        return {"all-but-one": draw_all_but_one(self)} if self.blocks else {}


def ablate_all_but_one(given: Subject | RunSettings, alpha: float = ALPHA) -> AblateAllButOne:
    """Close all heads of a block but one; the one is chosen on a set that is not reported.

    Args:
        given: a model with evaluation sets, or the settings of a run with a fine-tuned one. Heads
            are chosen on the first set and reported on the second, or on halves of the only one.
        alpha: level of the tests.
    """
    subject = subject_of(given)
    halves = len(subject.sets) < 2
    if halves:
        subject = subject.halved()
    chosen_on, split = subject.sets[:2]
    everything = HeadMask.all(subject.heads)
    blocks = [block for block in subject.heads.blocks if block.num_heads > 1]
    alone = [
        subject.without([other for other in block.indices if other != index])
        for block in blocks
        for index in block.indices
    ]
    whole, *others = subject.evaluate(chosen_on, [everything, *alone])
    best: list[tuple[int, float]] = []  # place in the block, and the change
    masks: list[HeadMask] = []
    start = 0
    for block in blocks:
        changes = [
            subject.value(found) - subject.value(whole)
            for found in others[start : start + block.num_heads]
        ]
        place = max(range(block.num_heads), key=lambda i: subject.better_by(changes[i], 0.0))
        best.append((place, changes[place]))
        masks.append(alone[start + place])
        start += block.num_heads
    reported, *found = subject.evaluate(split, [everything, *masks])
    value = subject.value(reported)
    tests = subject.compared(split, reported, found, alpha)
    rows = tuple(
        Alone(
            block.name, block.num_heads, block.heads[place], change, subject.value(one),
            subject.value(one) - value, test.p_value,
        )
        for block, (place, change), one, test in zip(blocks, best, found, tests, strict=True)
    )  # fmt: skip
    return AblateAllButOne(
        subject.name, subject.task, chosen_on, split, len(reported.predictions), halves,
        subject.metric, subject.greater_is_better, value, rows, alpha,
        max((test.least for test in tests), default=0.0),
    )  # fmt: skip
