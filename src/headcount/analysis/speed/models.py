"""Size and speed of models beside one another, the unpruned one first (Michel et al., Table 4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pandas as pd
from transformers import PreTrainedModel

from headcount.analysis.base import Analysis
from headcount.analysis.speed.work import Work, random_batch
from headcount.bench.size import cache_bytes, count_flops, peak_memory
from headcount.bench.speed import Machine, Spread, in_turn, ratio, this_machine
from headcount.errors import HeadcountError
from headcount.heads.find import find_heads
from headcount.surgery.remove import count_parameters

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from headcount.runs.progress import Progress


@dataclass(frozen=True)
class Size:
    """How large a model is.

    Attributes:
        model: its name.
        heads: that are there.
        born: that it was made with.
        parameters: how many.
        file_bytes: of its safetensors files; None if it has none.
        cache_bytes: of the keys and values of one text of `cache_tokens`; None if it does not
            generate.
        cache_tokens: length of that text.
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
        model: its name.
        work: `forward`, `greedy`, or so many beams.
        batch: examples at a time.
        length: of their texts in tokens, on average; None for images.
        per_second: examples, or tokens that are generated.
        speed_up: how many times as fast as the first model, compared round by round.
        flops: of all of the work.
        ideal: how many times as fast as the first model it would be if only these counted.
        peak_bytes: of the tensors that the work makes, at the worst moment; without the weights.
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
        """The share of the ideal speed-up that is measured."""
        return self.speed_up.median / self.ideal


@dataclass(frozen=True)
class Bench(Analysis):
    """Sizes and speeds of some models.

    Attributes:
        sizes: of every model, the unpruned one first.
        speeds: of every model at every work.
        machine: where they were measured.
        rounds: how often each was timed, at most.
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
        frame[whole] = frame[whole].astype("Int64")  # whole numbers, some of them missing
        return frame

    def figures(self) -> Mapping[str, Figure]:
        from headcount.analysis.speed.figures import draw_speeds

        return {"speed": draw_speeds(self)}


def bench_models(
    models: Mapping[str, PreTrainedModel],
    work: Sequence[Work],
    progress: Progress,
    rounds: int = 15,
    budget: float = 10.0,
) -> Bench:
    """Measure models beside one another.

    Args:
        models: by name or folder; the first is the unpruned one.
        work: what to time them at.
        progress: who wants to know.
        rounds: of each measurement.
        budget: seconds after which a measurement begins no further round; three are always run.
    """
    _refuse_other_inputs(models)
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


def _refuse_other_inputs(models: Mapping[str, PreTrainedModel]) -> None:
    """Models that do not take the same inputs cannot do the same work."""
    (first, whole), *others = models.items()
    for name, model in others:
        if _inputs(model) != _inputs(whole):
            raise HeadcountError(
                f"{name} takes {_inputs(model)}, but {first} takes {_inputs(whole)}; give models "
                "that were pruned from the same one"
            )


def _inputs(model: PreTrainedModel) -> str:
    words = getattr(model.config.get_text_config(), "vocab_size", None)
    return model.main_input_name + ("" if words is None else f" of {words} tokens")
