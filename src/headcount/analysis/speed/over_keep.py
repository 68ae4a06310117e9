"""Speed-up and shrinkage over the number of heads, for random masks (Fig. 4 of the DSP paper)."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from transformers import PreTrainedModel

from headcount.analysis.base import Analysis
from headcount.analysis.speed.models import gain_percent
from headcount.analysis.speed.work import Work
from headcount.bench.size import count_flops
from headcount.bench.speed import Machine, Spread, in_turn, ratio, this_machine
from headcount.heads.blocks import HeadMap
from headcount.heads.find import find_heads
from headcount.heads.mask import HeadMask, count_to_keep
from headcount.plots.style import dress, head, legend, look, new_figure
from headcount.runs.progress import Progress
from headcount.surgery.remove import count_parameters, remove_heads


@dataclass(frozen=True)
class CutModel:
    """A model from which random heads were removed.

    Attributes:
        keep: number of heads that are left.
        seed: the seed that drew the mask.
        batch: examples per batch.
        length: mean length of the texts in tokens; None for images.
        speed_up: how many times as fast as the unpruned model, compared round by round.
        ideal: how many times as fast it would be if only matrix products counted.
        parameters: number of parameters that are left.
        shrinkage: share of the parameters that were removed.
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
        """The measured speed-up as a share of the ideal one."""
        return self.speed_up.median / self.ideal


@dataclass(frozen=True)
class OverKeep(Analysis):
    """Speed-up and shrinkage of a model over K.

    Attributes:
        model: name of the model.
        heads: number of heads of the unpruned model.
        cut: every cut model that was measured.
        machine: the machine they were measured on.
        rounds: timed rounds per measurement, at most.
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
        name: name of the model, for the title.
        model: the unpruned model; it is not changed.
        work: what to time it at, see `random_work` and `task_work`.
        keep: the values of K to measure, each a count or a share below 1.
        masks: random masks per K; more shows how much the choice of heads matters.
        progress: receives each stage and step, for a progress bar.
        rounds: timed rounds per measurement, at most; more gives narrower quartiles.
        budget: seconds after which a measurement starts no new round. Three rounds always run.
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
    """Up to `number` different masks of K heads, each with the seed that draws it."""
    found: dict[HeadMask, int] = {}
    wanted = min(number, math.comb(len(heads), keep))
    for seed in itertools.count():
        if len(found) == wanted:
            break
        found.setdefault(HeadMask.random(heads, keep, seed), seed)
    return [(seed, mask) for mask, seed in found.items()]


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
            of["keep"], gain_percent(of["speed_up"]), linestyle="", marker=style["marker"],
            markersize=2.5, color=style["color"], alpha=0.5,
        )  # fmt: skip
        means = of.groupby("keep")[["speed_up", "ideal_speed_up"]].mean()
        left.plot(means.index, gain_percent(means["speed_up"]), linewidth=1.5, label=name, **style)
        last = name == names[-1]
        left.plot(
            means.index, gain_percent(means["ideal_speed_up"]), color=style["color"], linewidth=1,
            linestyle=(0, (1, 2)), label="ideal by operations" if last else "_",
        )  # fmt: skip
    shrunk = table.groupby("keep")["shrinkage"].mean()
    right.plot(shrunk.index, 100 * shrunk, "o-", color=look("joint-dsp")["color"], markersize=4)
    head(figure, f"{found.model}: random heads removed, mean over masks")
    legend(figure, left)
    return figure


def _shape(batch: int, length: Any) -> str:
    known = isinstance(length, int | np.integer)
    return f"batch {batch}, length {length}" if known else f"batch {batch}"
