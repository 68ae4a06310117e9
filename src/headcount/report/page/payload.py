"""Everything that the page's scripts draw, as one JSON value.

`build_payload` collects it: the curves of each comparison, every run, and mean courses. `embed`
makes it safe inside the page.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from headcount.analysis.settling import mean_course, settled
from headcount.plots.style import axis_label, look, metric_name, unit
from headcount.pruners.methods import UNPRUNED
from headcount.report.curves import FEW, born_heads, is_wide
from headcount.report.tables import Table, ranking
from headcount.stats.numbers import in_percent, shown
from headcount.stats.resampling import Array
from headcount.study.read import Comparison, StudyData
from headcount.study.run_record import Run

_SYMBOLS = {
    "o": "circle", "s": "square", "^": "triangle-up", "D": "diamond", "v": "triangle-down",
    "P": "cross", "X": "x", "*": "star",
}  # fmt: skip
_DASHES = {"-": "solid", "--": "dash", "-.": "dashdot", ":": "dot"}
_MOST_POINTS = 80  # of a course; more could not be seen


def build_payload(
    study: StudyData,
    comparisons: Sequence[Comparison],
    tables: Sequence[Table],
    files: dict[str, str],
) -> dict[str, Any]:
    """Collect everything, rounded to what can be seen.

    Args:
        study: the study with its runs.
        comparisons: the results of the study, one per model, task and evaluation set.
        tables: one table per comparison.
        files: texts of the files to download, by file name.
    """
    groups = list(dict.fromkeys((c.model, c.task) for c in comparisons))
    group_of = {
        name: groups.index((c.model, c.task)) for c in comparisons for name in c.rows["run"]
    }
    methods = list(dict.fromkeys(m for c in comparisons for m in c.methods))
    pruners = [run.result.method for run in study.runs.values()]
    drawn = [name for name in dict.fromkeys([*methods, *pruners]) if name != UNPRUNED]
    layouts: list[dict[str, Any]] = []
    runs = [_run_data(run, group_of.get(name), layouts) for name, run in study.runs.items()]
    settings = [
        dict(_flat_settings({**run.settings, "signature": run.result.signatures}))
        for run in study.runs.values()
    ]
    shared = dict(set.intersection(*(set(of.items()) for of in settings))) if settings else {}
    for run, own in zip(runs, settings, strict=True):
        run["settings"] = {name: value for name, value in own.items() if name not in shared}
    return {
        "methods": methods,
        "looks": {name: _look(name, study.order) for name in drawn},
        "groups": [", ".join(group) for group in groups],
        "comparisons": [
            _curve_data(c, table, groups.index((c.model, c.task)))
            for c, table in zip(comparisons, tables, strict=True)
        ],
        "layouts": layouts,
        "runs": runs,
        "courses": _mean_courses(study, group_of),
        "settings": dict(sorted(shared.items())),
        "files": files,
    }


def embed(payload: dict[str, Any]) -> str:
    """As JSON that is safe inside a script element, whatever names it contains."""
    text = json.dumps(payload, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c")


def _look(method: str, among: Sequence[str]) -> dict[str, object]:
    """Colour, symbol and dashes of a method, as in the figures."""
    style: dict[str, Any] = look(method, among)
    dash = style["linestyle"]
    if not isinstance(dash, str):
        dash = ",".join(f"{2 * length}px" for length in dash[1])
    return {
        "color": style["color"],
        "symbol": _SYMBOLS[style["marker"]],
        "dash": _DASHES.get(dash, dash),
    }


def _curve_data(comparison: Comparison, table: Table, group: int) -> dict[str, Any]:
    """Means with their spread, and the result of every seed.

    Args:
        comparison: the results of one model, task and evaluation set.
        table: its table, which knows the best methods.
        group: number of the model and task.
    """
    scale = unit(comparison.metric)
    born = born_heads(comparison)
    unpruned = comparison.unpruned["value"]
    counts = [str(k) for k in table.rows]
    return {
        "title": f"{comparison.title}: {metric_name(comparison.metric)}",
        "group": group,
        "split": comparison.split,
        "label": axis_label(comparison.metric),
        "metric": metric_name(comparison.metric),
        "unit": " %" if in_percent(comparison.metric) else "",
        "born": int(born),
        "few": FEW * born,
        "wide": is_wide(comparison),
        "unpruned": None if unpruned.empty else _rounded(scale * unpruned.mean(), 6),
        "ranking": ranking(table, comparison),
        "counts": {k: _look(k, counts) for k in counts},
        "means": _by_method(comparison, comparison.counted, lambda of: _means(of, scale)),
        "seeds": _by_method(comparison, comparison.counted, lambda of: _each(of, "k", scale)),
        "own": _by_method(comparison, comparison.own_count, lambda of: _each(of, "heads", scale)),
    }


def _by_method(comparison: Comparison, rows: pd.DataFrame, what: Any) -> dict[str, Any]:
    found = ((method, rows[rows["method"] == method]) for method in comparison.methods)
    return {method: what(of) for method, of in found if not of.empty}


def _means(rows: pd.DataFrame, scale: float) -> list[list[float | None]]:
    """Heads, mean, standard deviation, number of seeds."""
    found = rows.groupby("k")["value"].agg(["mean", "std", "count"])
    return [
        [k, _rounded(scale * mean, 6), _rounded(scale * std, 6), count]
        for k, mean, std, count in found.itertuples()
    ]


def _each(rows: pd.DataFrame, heads: str, scale: float) -> list[list[float | None]]:
    """Heads, value, seed."""
    columns = zip(rows[heads], rows["value"], rows["seed"], strict=True)
    return [[k, _rounded(scale * value, 6), int(seed)] for k, value, seed in columns]


def _run_data(run: Run, group: int | None, layouts: list[dict[str, Any]]) -> dict[str, Any]:
    """One run, compact.

    Args:
        run: the run.
        group: number of its model and task; None if it has no row in the results.
        layouts: layouts of the runs so far; a new one is added here.
    """
    result, mask = run.result, run.mask
    speed = result.speed
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
        "speed": None if speed is None else [_rounded(speed.before), _rounded(speed.after)],
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
            data["importance"] = [_rounded(score) for score in run.importance]
    return data


def _more(run: Run) -> Iterator[tuple[str, str, str, str]]:
    """The rows that the table of a run's result leaves out."""
    result = run.result
    for split, scores in result.scores.items():
        for metric, value in scores.items():
            if metric != result.metric:
                yield f"{metric}, {split}", "", shown(metric, value), ""
    yield "largest difference of masked and cut", "", f"{result.difference:.2g}", ""
    for stage, seconds in result.seconds.items():
        yield f"{stage}, seconds", "", f"{seconds:.1f}", ""


def _flat_settings(settings: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Name and value of every setting that has a value."""
    for name, value in settings.items():
        if isinstance(value, dict):
            yield from _flat_settings(value, f"{prefix}{name}.")
        elif value not in (None, [], ""):
            text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
            yield prefix + name, text


def _mean_courses(study: StudyData, group_of: dict[str, int]) -> list[dict[str, Any]]:
    """The mean course of each method's runs."""
    found: dict[tuple[int, str], list[Any]] = {}
    for name, run in study.runs.items():
        course = settled(run)
        if course is not None and name in group_of:
            found.setdefault((group_of[name], run.method), []).append(course)
    return [
        {"group": group, "method": method, "course": course_data(*mean_course(courses))}
        for (group, method), courses in found.items()
    ]


def course_data(steps: Array, shares: Array) -> list[list[float]]:
    """The steps at which the share changes, with the percentage there, and the last step."""
    places = np.flatnonzero(np.diff(shares, prepend=np.nan))
    places = np.unique(np.append(places, len(steps) - 1))
    if len(places) > _MOST_POINTS:
        places = places[np.linspace(0, len(places) - 1, _MOST_POINTS).astype(int)]
    return [steps[places].astype(int).tolist(), np.round(100 * shares[places], 1).tolist()]


def _rounded(value: float, digits: int = 4) -> float | None:
    """Rounded to some significant digits, to keep the page small; None for NaN and infinity."""
    return float(f"{value:.{digits}g}") if math.isfinite(value) else None
