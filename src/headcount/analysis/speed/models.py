"""Size and speed of models side by side, the unpruned one first (Michel et al., Table 4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from transformers import PreTrainedModel

from headcount.analysis.base import Analysis
from headcount.analysis.speed.work import Work
from headcount.bench.made_up import random_batch
from headcount.bench.same_model import refuse_other_models
from headcount.bench.size import cache_bytes, count_flops, peak_memory
from headcount.bench.speed import Machine, Spread, in_turn, ratio, this_machine
from headcount.heads.find import find_heads
from headcount.plots.style import GREY, dress, head, legend, look, new_figure
from headcount.runs.progress import Progress
from headcount.surgery.remove import count_parameters

_Place = tuple[str, int, int | None]  # name of the work, batch size and length


@dataclass(frozen=True)
class Size:
    """How large a model is.

    Attributes:
        model: name of the model.
        heads: number of heads that it has now.
        born: number of heads before any removal.
        parameters: number of parameters.
        file_bytes: size of its safetensors files; None if it has none.
        cache_bytes: size of the keys and values of one text of `cache_tokens`; None if the model
            does not generate.
        cache_tokens: length of that text, in tokens.
    """

    model: str
    heads: int
    born: int
    parameters: int
    file_bytes: int | None
    cache_bytes: int | None
    cache_tokens: int


@dataclass(frozen=True)
class Speed:
    """How fast a model is at one kind of work.

    Attributes:
        model: name of the model.
        work: `forward`, `greedy`, or the number of beams: `4 beams`.
        batch: examples per batch.
        length: mean length of the texts in tokens; None for images.
        per_second: examples per second, or generated tokens per second.
        speed_up: how many times as fast as the first model, compared round by round.
        flops: operations of the whole work.
        ideal: how many times as fast as the first model it would be if only `flops` counted.
        peak_bytes: most memory that the tensors of the work take at one time, without the weights.
    """

    model: str
    work: str
    batch: int
    length: int | None
    per_second: Spread
    speed_up: Spread
    flops: int
    ideal: float
    peak_bytes: int

    @property
    def reached(self) -> float:
        """The measured speed-up as a share of the ideal one."""
        return self.speed_up.median / self.ideal


@dataclass(frozen=True)
class Bench(Analysis):
    """Sizes and speeds of some models.

    Attributes:
        sizes: size of every model, the unpruned one first.
        speeds: speed of every model at every work.
        machine: the machine they were measured on.
        rounds: timed rounds per measurement, at most.
    """

    kind: ClassVar[str] = "bench"
    sizes: tuple[Size, ...]
    speeds: tuple[Speed, ...]
    machine: Machine
    rounds: int

    @property
    def title(self) -> str:
        return f"Size and speed of {', '.join(size.model for size in self.sizes)}"

    @property
    def note(self) -> str:
        return (
            "Every model does the same work in turn; speeds are medians with quartiles, of at most "
            f"{self.rounds} rounds after a warm-up, and speed-ups are compared round by round with "
            f"{self.sizes[0].model}. The ideal speed-up is the ratio of the operations of matrix "
            "products. Memory is of the tensors that a pass makes, without the weights. "
            f"Measured on {self.machine}."
        )

    def table(self) -> pd.DataFrame:
        sizes = {size.model: size for size in self.sizes}
        rows = []
        for speed in self.speeds:
            size = sizes[speed.model]
            rows.append(
                {
                    "model": speed.model,
                    "heads": size.heads,
                    "parameters": size.parameters,
                    "file_bytes": size.file_bytes,
                    "cache_bytes": size.cache_bytes,
                    "work": speed.work,
                    "batch": speed.batch,
                    "length": speed.length,
                    "per_second": speed.per_second.median,
                    "per_second_low": speed.per_second.low,
                    "per_second_high": speed.per_second.high,
                    "speed_up": speed.speed_up.median,
                    "speed_up_low": speed.speed_up.low,
                    "speed_up_high": speed.speed_up.high,
                    "flops": speed.flops,
                    "ideal_speed_up": speed.ideal,
                    "reached": speed.reached,
                    "peak_bytes": speed.peak_bytes,
                }
            )
        frame = pd.DataFrame(rows)
        whole = ["file_bytes", "cache_bytes", "length"]
        frame[whole] = frame[whole].astype("Int64")  # integers, some of them missing
        return frame

    def figures(self) -> Mapping[str, Figure]:
        return {"speed": draw_speeds(self)}


def bench_models(
    models: Mapping[str, PreTrainedModel],
    work: Sequence[Work],
    progress: Progress,
    rounds: int = 15,
    budget: float = 10.0,
) -> Bench:
    """Measure models side by side.

    Args:
        models: the models by name or folder, the unpruned one first.
        work: what to time them at, see `random_work` and `task_work`.
        progress: receives each stage and step, for a progress bar.
        rounds: timed rounds per measurement, at most; more gives narrower quartiles.
        budget: seconds after which a measurement starts no new round. Three rounds always run.
    """
    refuse_other_models(models)
    machine = this_machine()
    tokens = next((w.length for w in work if w.length is not None), 0)
    sizes = tuple(_size(name, model, tokens) for name, model in models.items())
    speeds: list[Speed] = []
    progress.begin("timing", len(work))
    for done, some in enumerate(work):
        speeds += _speeds(models, some, rounds, budget)
        progress.advance(done + 1)
    return Bench(sizes, tuple(speeds), machine, rounds)


def _size(name: str, model: PreTrainedModel, tokens: int) -> Size:
    heads = find_heads(model)
    files = list(Path(name).glob("*.safetensors")) if Path(name).is_dir() else []
    cached = None
    if model.can_generate():
        cached = cache_bytes(model, random_batch(model, 1, tokens))
    return Size(
        name, len(heads), heads.born, count_parameters(model),
        sum(file.stat().st_size for file in files) or None, cached, tokens,
    )  # fmt: skip


def _speeds(
    models: Mapping[str, PreTrainedModel], work: Work, rounds: int, budget: float
) -> list[Speed]:
    jobs = [work.job(model) for model in models.values()]
    flops = [count_flops(job) for job in jobs]
    peaks = [peak_memory(job) for job in jobs]
    times = in_turn(jobs, rounds, budget=budget)
    return [
        Speed(
            name, work.name, work.batch, work.length, Spread.of([work.items / t for t in spent]),
            ratio(times[0], spent), operations, flops[0] / operations, peak,
        )
        for name, spent, operations, peak in zip(models, times, flops, peaks, strict=True)
    ]  # fmt: skip


def draw_speeds(bench: Bench) -> Figure:
    """A bar per model and work: the measured speed-up, with a line at the ideal one."""
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
        gains = [gain_percent(speed.speed_up.median) for speed in speeds]
        spans = [
            [gain_percent(s.speed_up.median) - gain_percent(s.speed_up.low) for s in speeds],
            [gain_percent(s.speed_up.high) - gain_percent(s.speed_up.median) for s in speeds],
        ]
        style: dict[str, Any] = look(name, names)
        axes.bar(
            places, gains, 0.9 * width, yerr=spans, capsize=2, color=style["color"],
            ecolor=GREY, label=short[turn],
        )  # fmt: skip
        axes.hlines(
            [gain_percent(speed.ideal) for speed in speeds], places - 0.45 * width,
            places + 0.45 * width, color="black", linewidth=1.5,
            label="ideal by operations" if turn == len(names) - 1 else "_",
        )  # fmt: skip
    axes.axhline(0, color=GREY, linewidth=0.8)
    axes.set_xticks(range(len(works)), [_label(work) for work in works], fontsize=8)
    head(figure, "Measured speed-up, with quartiles")
    legend(figure, axes)
    return figure


def _place(speed: Speed) -> _Place:
    return speed.work, speed.batch, speed.length


def _short_names(names: list[str]) -> list[str]:
    """The last parts of the paths, if they are all different."""
    last = [name.rstrip("/").rsplit("/", 1)[-1] for name in names]
    return last if len(set(last)) == len(last) else names


def gain_percent(speed_up: Any) -> Any:
    """A speed-up as percent gained: 1.2 times as fast is 20 %."""
    return 100 * (speed_up - 1)


def _label(work: _Place) -> str:
    name, batch, length = work
    return f"{name}\nbatch {batch}" + ("" if length is None else f"\nlength {length}")
