"""Is one head per block enough? (Michel et al. 2019, Section 3.3, Tables 2, 3, 5 and 6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import ClassVar

import pandas as pd
from matplotlib.figure import Figure

from headcount.analysis.ablation.one import ALPHA, change_label, too_coarse
from headcount.analysis.ablation.subject import Subject
from headcount.analysis.ablation.task_subject import subject_of
from headcount.analysis.base import Analysis
from headcount.heads.blocks import AttentionBlock
from headcount.heads.mask import HeadMask
from headcount.plots.style import BLUE, GREY, RED, axis_label, dress, new_figure, unit
from headcount.runs.settings import RunSettings
from headcount.runs.trainer import Evaluation
from headcount.stats.numbers import shown
from headcount.stats.significance import holm


@dataclass(frozen=True)
class Alone:
    """A block that keeps only its best head.

    Attributes:
        block: name of the block.
        heads: number of heads that the block has.
        best: number of the head that is best alone on the set to choose on.
        chosen_change: change of the metric on that set. It flatters, since the head was chosen
            there.
        value: the metric on the reported set.
        change: difference from the unpruned model on the reported set.
        p_value: p-value of the paired test on the reported set.
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
        model: name of the model.
        task: name of the task.
        chosen_on: name of the evaluation set that the heads were chosen on.
        split: name of the reported evaluation set.
        examples: number of examples in the reported set.
        halves: whether these are the two halves of one set.
        metric: name of the metric.
        greater_is_better: whether a larger value of the metric is better.
        whole: the metric of the unpruned model on the reported set.
        blocks: the blocks with several heads, in order.
        alpha: significance level of the tests.
        least: the smallest p-value that the tests can give; 0 if they are exact.
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
        return {"all-but-one": draw_all_but_one(self)} if self.blocks else {}


def ablate_all_but_one(given: Subject | RunSettings, alpha: float = ALPHA) -> AblateAllButOne:
    """Close all heads of a block except one, which is chosen on a set that is not reported.

    Args:
        given: the model with its evaluation sets, or the settings of a run with a fine-tuned model.
            Heads are chosen on the first set and reported on the second. A single set is halved.
        alpha: significance level; a p-value below it counts as a real difference.
    """
    subject = subject_of(given)
    halves = len(subject.sets) < 2
    if halves:
        subject = subject.halved()
    chosen_on, split = subject.sets[:2]
    everything = HeadMask.all(subject.heads)
    blocks = [block for block in subject.heads.blocks if block.num_heads > 1]
    alone = [_each_alone(subject, block) for block in blocks]
    masks = [mask for of_block in alone for mask in of_block]
    best = _best(subject, blocks, subject.evaluate(chosen_on, [everything, *masks]))
    chosen = [of_block[place] for of_block, (place, _) in zip(alone, best, strict=True)]
    reported, *found = subject.evaluate(split, [everything, *chosen])
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


def _each_alone(subject: Subject, block: AttentionBlock) -> list[HeadMask]:
    """For each head of a block, the mask that closes the block's other heads."""
    return [
        subject.without([other for other in block.indices if other != index])
        for index in block.indices
    ]


def _best(
    subject: Subject, blocks: Sequence[AttentionBlock], evaluations: Sequence[Evaluation]
) -> list[tuple[int, float]]:
    """For each block, which of its heads is best alone, and how it changes the metric."""
    whole, *others = map(subject.value, evaluations)
    values = iter(others)
    best = []
    for block in blocks:
        changes = [value - whole for value in islice(values, block.num_heads)]
        gains = [subject.better_by(change, 0.0) for change in changes]
        place = gains.index(max(gains))
        best.append((place, changes[place]))
    return best


def draw_all_but_one(found: AblateAllButOne) -> Figure:
    """The change for each block that keeps one head; filled if the p-value is below alpha."""
    scale = unit(found.metric)
    changes = [scale * b.change for b in found.blocks]
    figure = new_figure(5.4, 0.27 * len(changes) + 1.4)
    axes = figure.subplots()
    places = range(len(changes))
    axes.axvline(0, color=GREY, linewidth=1)
    axes.hlines(places, 0, changes, color="#bbbbbb", linewidth=2)
    for low, label in ((True, f"p < {found.alpha:g}"), (False, "not significant")):
        chosen = [i for i in places if (found.blocks[i].p_value < found.alpha) == low]
        if not chosen:
            continue
        axes.scatter(
            [changes[i] for i in chosen], chosen, s=34, zorder=3, label=label,
            color=RED if low else "white", edgecolors=RED if low else BLUE, linewidths=1.5,
            marker="D" if low else "o",
        )  # fmt: skip
    dress(
        axes,
        f"{found.model}, {found.split}: one head left in a block",
        change_label(found.metric),
        "",
    )
    axes.set_yticks(places, [f"{b.block}  (head {b.best})" for b in found.blocks])
    axes.invert_yaxis()
    axes.legend(fontsize=8, frameon=False, loc="best")
    return figure
