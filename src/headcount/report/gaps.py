"""Results that a study asked for and does not have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pandas as pd

from headcount.study.entry import UNPRUNED
from headcount.study.plan import StudySettings

_Wanted = tuple[str, float | None, int]  # method or variant, heads asked for, seed


def gaps(results: pd.DataFrame, asked: StudySettings | None) -> Iterator[str]:
    """What is missing, one sentence for the seeds of a method and number of heads.

    Args:
        results: of the study.
        asked: what it was to do; without it, a full grid of what has results.
    """
    for (model, task, split), rows in results.groupby(["model", "task", "split"], sort=False):
        if asked is None:
            column = "k"
            wanted: Iterable[_Wanted] = _grid(rows)
        else:
            column = "keep"
            wanted = [
                (run.name, run.keep if isinstance(run.keep, int | float) else None, run.seed)
                for run in asked.runs().values()
            ]
        counts = [None if pd.isna(count) else float(count) for count in rows[column]]
        done = set(zip(rows["method"], counts, rows["seed"], strict=True))
        lost: dict[tuple[str, float | None], list[str]] = {}
        for method, count, seed in wanted:
            if (method, count, seed) not in done:
                lost.setdefault((method, count), []).append(str(seed))
        for (method, count), seeds in lost.items():
            share = "of all " if count is not None and count < 1 else ""
            heads = "" if count is None else f" with {count:g} {share}heads"
            yield (
                f"{model}, {task}, {split}: no result of {method}{heads} for seed "
                f"{', '.join(seeds)}"
            )


def _grid(rows: pd.DataFrame) -> Iterator[_Wanted]:
    """Every method that was told how many heads to keep, with every number and seed."""
    counted = rows[(rows["method"] != UNPRUNED) & rows["k"].notna()]
    for method in dict.fromkeys(counted["method"]):
        for k in sorted(set(counted["k"]), reverse=True):
            for seed in sorted(set(counted["seed"])):
                yield str(method), float(k), int(seed)
