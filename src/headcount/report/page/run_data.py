"""What the page knows of one run: its heads, its course, its speed and size, its settings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from headcount.report.figures.dynamics import Array, settled
from headcount.report.page.curves import rounded
from headcount.report.run_record import Run
from headcount.runs.result import shown

_MOST_POINTS = 80  # of a course; more are not seen


def run_data(run: Run, group: int | None, layouts: list[dict[str, Any]]) -> dict[str, Any]:
    """One run, compact.

    Args:
        run: which.
        group: the number of its model and task; None if it has no row in the results.
        layouts: those of the runs before; a new one is added.
    """
    result, mask = run.result, run.mask
    speed = result.examples_per_second or result.generated_per_second
    course = settled(run)
    data: dict[str, Any] = {
        "name": run.name,
        "group": group,
        "method": run.method,
        "pruner": result.method,
        "seed": run.settings.get("seed"),
        "penalty": run.penalty,
        "heads": int(result.heads.after),
        "born": int(result.heads.before),
        "scores": {
            split: shown(result.metric, scores[result.metric])
            for split, scores in result.scores.items()
        },
        "speed": None if speed is None else [rounded(speed.before), rounded(speed.after)],
        "parameters": [result.parameters.before, result.parameters.after],
        "bytes": [result.bytes.before, result.bytes.after],
        "course": None if course is None else course_data(*course),
        "measured": [*result.rows(), *_more(run)],
    }
    if mask is not None:
        whole = mask.to_dict()
        layout = {
            "format": whole["format"],
            "model_type": mask.model_type,
            "blocks": [list(block) for block in mask.layout],
        }
        if layout not in layouts:
            layouts.append(layout)
        data |= {"layout": layouts.index(layout), "kept": list(mask.indices)}
        if run.importance is not None:
            data["importance"] = [rounded(score) for score in run.importance]
    return data


def course_data(steps: Array, shares: Array) -> list[list[float]]:
    """Steps and percentages where the share changes, and the last one."""
    places = np.flatnonzero(np.diff(shares, prepend=np.nan))
    places = np.unique(np.append(places, len(steps) - 1))
    if len(places) > _MOST_POINTS:
        places = places[np.linspace(0, len(places) - 1, _MOST_POINTS).astype(int)]
    return [steps[places].astype(int).tolist(), np.round(100 * shares[places], 1).tolist()]


def flat_settings(settings: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Name and value of every setting that has one."""
    for name, value in settings.items():
        if isinstance(value, dict):
            yield from flat_settings(value, f"{prefix}{name}.")
        elif value not in (None, [], ""):
            text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
            yield prefix + name, text


def _more(run: Run) -> Iterator[tuple[str, str, str, str]]:
    """What the table for a person leaves out."""
    result = run.result
    for split, scores in result.scores.items():
        for metric, value in scores.items():
            if metric != result.metric:
                yield f"{metric}, {split}", "", shown(metric, value), ""
    yield "largest difference of masked and cut", "", f"{result.difference:.2g}", ""
    for stage, seconds in result.seconds.items():
        yield f"{stage}, seconds", "", f"{seconds:.1f}", ""
