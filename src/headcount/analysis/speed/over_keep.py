"""Speed-up and shrinkage over the number of heads, for random masks (Fig. 4 of the DSP paper)."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import pandas as pd
from transformers import PreTrainedModel

from headcount.analysis.base import Analysis
from headcount.analysis.speed.work import Work
from headcount.bench.size import count_flops
from headcount.bench.speed import Machine, Spread, in_turn, ratio, this_machine
from headcount.heads.blocks import HeadMap
from headcount.heads.find import find_heads
from headcount.heads.mask import HeadMask, count_to_keep
from headcount.surgery.remove import count_parameters, remove_heads

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from headcount.runs.progress import Progress


@dataclass(frozen=True)
class CutModel:
    """A model from which random heads were removed.

    Attributes:
        keep: heads that are left.
        seed: of the draw.
        batch: examples at a time.
        length: of their texts in tokens, on average; None for images.
        speed_up: how many times as fast as the unpruned model, compared round by round.
        ideal: what the operations of matrix products allow.
        parameters: that are left.
        shrinkage: share of the parameters that is gone.
    """

    keep: int
    seed: int
    batch: int
    length: int | None
    speed_up: Spread
    ideal: float
    parameters: int
    shrinkage: float

    @property
    def reached(self) -> float:
        """The share of the ideal speed-up that is measured."""
        return self.speed_up.median / self.ideal


@dataclass(frozen=True)
class OverKeep(Analysis):
    """Speed-up and shrinkage of a model over K.

    Attributes:
        model: its name.
        heads: of the unpruned model.
        cut: every model that was measured.
        machine: where.
        rounds: how often each was timed, at most.
    """

    kind: ClassVar[str] = "bench-over-keep"
    model: str
    heads: int
    cut: tuple[CutModel, ...]
    machine: Machine
    rounds: int

    @property
    def title(self) -> str:
        return f"Speed-up and shrinkage of {self.model} by kept heads"

    @property
    def note(self) -> str:
        return (
            f"Random masks of each number of {self.heads} heads, no mask twice, removed for real. "
            "Each cut model and the unpruned one work in turn and are compared round by round, in "
            f"at most {self.rounds} rounds after a warm-up. The ideal speed-up is the ratio of the "
            f"operations of matrix products. Measured on {self.machine}."
        )

    def table(self) -> pd.DataFrame:
        return pd.DataFrame(
            {
                "keep": one.keep,
                "seed": one.seed,
                "batch": one.batch,
                "length": one.length,
                "speed_up": one.speed_up.median,
                "speed_up_low": one.speed_up.low,
                "speed_up_high": one.speed_up.high,
                "ideal_speed_up": one.ideal,
                "reached": one.reached,
                "parameters": one.parameters,
                "shrinkage": one.shrinkage,
            }
            for one in self.cut
        ).astype({"length": "Int64"})

    def figures(self) -> Mapping[str, Figure]:
        from headcount.analysis.speed.figures import draw_over_keep

        return {"speed": draw_over_keep(self)}


def bench_over_keep(
    name: str,
    model: PreTrainedModel,
    work: Sequence[Work],
    keep: Sequence[int | float],
    masks: int,
    progress: Progress,
    rounds: int = 15,
    budget: float = 10.0,
) -> OverKeep:
    """Remove random heads and measure, for each K.

    Args:
        name: of the model.
        model: the unpruned one; it is not changed.
        work: what to time it at.
        keep: every K, as a count or a share below 1.
        masks: random masks of each K.
        progress: who wants to know.
        rounds: of each measurement.
        budget: seconds after which a measurement begins no further round; three are always run.
    """
    machine, heads = this_machine(), find_heads(model)
    counts = sorted({count_to_keep(k, len(heads)) for k in keep}, reverse=True)
    drawn = [(seed, mask) for count in counts for seed, mask in random_masks(heads, count, masks)]
    flops = [count_flops(some.job(model)) for some in work]
    before, cut = count_parameters(model), []
    progress.begin("removing and timing", len(drawn))
    for done, (seed, mask) in enumerate(drawn):
        small = copy.deepcopy(model)
        after = remove_heads(small, mask).parameters_after
        for some, whole in zip(work, flops, strict=True):
            jobs = [some.job(model), some.job(small)]
            times = in_turn(jobs, rounds, budget=budget)
            ideal = whole / count_flops(jobs[1])
            gone = 1 - after / before
            shape = (some.batch, some.length)
            cut.append(CutModel(len(mask), seed, *shape, ratio(*times), ideal, after, gone))
        progress.advance(done + 1)
    return OverKeep(name, len(heads), tuple(cut), machine, rounds)


def random_masks(heads: HeadMap, keep: int, number: int) -> list[tuple[int, HeadMask]]:
    """So many different masks of K heads with the seeds that draw them, or all that there are."""
    found: dict[HeadMask, int] = {}
    wanted = min(number, math.comb(len(heads), keep))
    for seed in itertools.count():
        if len(found) == wanted:
            break
        found.setdefault(HeadMask.random(heads, keep, seed), seed)
    return [(seed, mask) for mask, seed in found.items()]
