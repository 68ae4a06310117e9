"""`headcount bench`: size and speed of models beside one another."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.console import Console

from headcount.cli import options
from headcount.cli.help import METHOD, OUTPUT, RARE, argument, option
from headcount.cli.options import Given, with_data
from headcount.cli.show import Bars, show_rows
from headcount.errors import HeadcountError

if TYPE_CHECKING:
    from headcount.analysis.speed.models import Bench
    from headcount.analysis.speed.over_keep import OverKeep
    from headcount.bench.speed import Spread


@with_data(without=("eval_batch_size", "limit_train"))
def bench(
    models: Annotated[
        list[str],
        argument("MODELS", "Model folders or names on the hub, the unpruned one first."),
    ],
    given: Given,
    batch_size: Annotated[
        list[int] | None,
        option(
            METHOD,
            "N",
            "Texts at once; repeatable. 1, 4, 16 and 64 if it is not given, and 8 for one model.",
            min=1,
        ),
    ] = None,
    length: Annotated[
        list[int] | None,
        option(METHOD, "N", "Tokens of made-up texts; repeatable. 40 if it is not given.", min=1),
    ] = None,
    keep: Annotated[
        str | None,
        option(
            METHOD,
            "K",
            "For one model: heads that random masks keep, as counts or shares: 0.5,12. From "
            "eleven twelfths down to one if it is not given.",
        ),
    ] = None,
    masks: Annotated[int, option(METHOD, "N", "For one model: masks of each K.", min=1)] = 3,
    beams: Annotated[
        int, option(METHOD, "N", "Beams of generation, besides greedy; 0 generates nothing.", min=0)
    ] = 5,
    rounds: Annotated[int, option(RARE, "N", "Time everything N times.", min=3)] = 15,
    budget: Annotated[
        float, option(RARE, "SECONDS", "A measurement begins no new round after this time.")
    ] = 10.0,
    random_weights: Annotated[
        bool,
        option(RARE, None, "Read only config.json; weights are random.", "--random-weights"),
    ] = False,
    output: Annotated[
        Path | None, option(OUTPUT, "FOLDER", "A new folder for table, figure and data.")
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Measure size, speed and memory beside the unpruned model.

    Texts are made up, or those of a task. If you give one model alone, random heads are removed
    from it, for several numbers of kept heads.

    Examples:
        # A pruned model beside the one that it came from
        headcount bench bert-base-uncased small --length 128
        # How fast would it be with 72 or 12 of its heads?
        headcount bench bert-base-uncased --keep 72,12
    """
    if output is not None:
        from headcount.analysis.base import refuse_bad_place

        refuse_bad_place(output)
    if len(set(models)) < len(models):
        raise HeadcountError("a model is given twice; give each folder once")
    if len(models) > 1 and keep is not None:
        raise HeadcountError("--keep is for one model alone; leave it out, or give one model")
    of_task = options.names_data(given)
    if length and of_task:
        raise HeadcountError("a task has its own lengths; leave out --length, or the data")
    from headcount.analysis.speed.models import bench_models
    from headcount.analysis.speed.over_keep import bench_over_keep
    from headcount.analysis.speed.work import random_work, task_work
    from headcount.bench.same_model import refuse_other_models
    from headcount.loading.folder import load_model, random_model

    console = Console(stderr=as_json)
    alone = len(models) == 1
    sizes = batch_size or ([8] if alone else [1, 4, 16, 64])
    with Bars(console) as bars:
        bars.begin("loading", len(models))
        loaded = {}
        for folder in models:
            loaded[folder] = random_model(folder) if random_weights else load_model(folder)
            bars.advance(len(loaded))
        refuse_other_models(loaded)
        first = loaded[models[0]]
        generation = 0 if alone else beams
        if of_task:
            from headcount.tasks.registry import make_task

            settings = options.run_settings({**given, "model": models[0]})
            made = make_task(settings.task, settings.data_settings())
            processor = made.load_processor(models[0])
            bars.begin("preparing data")
            sets = made.evaluation_data(processor)
            collator = made.collator(processor, first)
            work = task_work(first, next(iter(sets.values())), collator, sizes, generation)
        else:
            work = random_work(first, sizes, length or [40], generation)
        found: Bench | OverKeep
        if alone:
            counts = [n / 12 for n in range(11, 0, -1)] if keep is None else _counts(keep)
            found = bench_over_keep(models[0], first, work, counts, masks, bars, rounds, budget)
        else:
            found = bench_models(loaded, work, bars, rounds, budget)
    _tell(console, found, output, as_json)


def _counts(keep: str) -> Sequence[int | float]:
    counts = options.keep_counts(keep)
    return counts if isinstance(counts, tuple) else (counts,)


def _tell(console: Console, found: Bench | OverKeep, output: Path | None, as_json: bool) -> None:
    from headcount.analysis.speed.models import Bench

    if output is not None:
        from headcount.analysis.base import save_analysis

        save_analysis(found, output)
    if as_json:
        print(json.dumps(asdict(found), indent=2))
        return
    if isinstance(found, Bench):
        _show_models(console, found)
    else:
        _show_over_keep(console, found)
    console.print(found.note, highlight=False, markup=False, soft_wrap=True)
    if output is not None:
        console.print(f"table, figure and data are in {output}", highlight=False, markup=False)


def _show_models(console: Console, found: Bench) -> None:
    tokens = found.sizes[0].cache_tokens
    folders = {size.model: Path(size.model).name for size in found.sizes}
    names = folders if len(set(folders.values())) == len(folders) else {m: m for m in folders}
    columns = ["heads", "parameters", "file, MB", f"cache of {tokens} tokens, MB"]
    rows = []
    for size in found.sizes:
        counts = [f"{size.heads}/{size.born}", f"{size.parameters:,}"]
        rows.append(
            [names[size.model], *counts, *map(_megabytes, (size.file_bytes, size.cache_bytes))]
        )
    while all(row[-1] == "–" for row in rows):  # no model has such a figure
        rows, columns = [row[:-1] for row in rows], columns[:-1]
    show_rows(console, "size", columns, rows)
    columns = ["work", "batch", "length", "per second", "speed-up", "ideal", "reached", "peak, MB"]
    rows = []
    for speed in found.speeds:
        shape = [str(speed.batch), "–" if speed.length is None else str(speed.length)]
        spreads = [f"{speed.per_second.median:.1f}", _spread(speed.speed_up, ".2f")]
        shares = [f"{speed.ideal:.2f}", f"{100 * speed.reached:.0f} %"]
        peak = _megabytes(speed.peak_bytes)
        rows.append([names[speed.model], speed.work, *shape, *spreads, *shares, peak])
    show_rows(console, "speed: medians, with quartiles of the speed-up", columns, rows)


def _show_over_keep(console: Console, found: OverKeep) -> None:
    means = found.table().groupby(["keep", "batch", "length"], sort=False, dropna=False).mean()
    rows = [
        (str(keep), str(batch), str(length), f"{row.speed_up:.2f}", f"{row.ideal_speed_up:.2f}",
         f"{100 * row.reached:.0f} %", f"{100 * row.shrinkage:.1f} %")
        for (keep, batch, length), row in zip(means.index, means.itertuples(), strict=True)
    ]  # fmt: skip
    columns = ("batch", "length", "speed-up", "ideal", "reached", "shrinkage")
    show_rows(
        console, f"{found.model}: kept of {found.heads} heads, mean over masks", columns, rows
    )


def _megabytes(size: int | None) -> str:
    return "–" if size is None else f"{size / 1e6:.4g}"


def _spread(spread: Spread, form: str) -> str:
    return f"{spread.median:{form}} ({spread.low:{form}}–{spread.high:{form}})"
