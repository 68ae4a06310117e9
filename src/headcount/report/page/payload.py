"""All that the page's script draws, as one JSON value."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from headcount.report.figures.dynamics import mean_course, settled
from headcount.report.figures.style import look
from headcount.report.page.curves import curve_data
from headcount.report.page.run_data import course_data, flat_settings, run_data
from headcount.report.study_data import Comparison, StudyData
from headcount.study.entry import UNPRUNED

_SYMBOLS = {
    "o": "circle", "s": "square", "^": "triangle-up", "D": "diamond", "v": "triangle-down",
    "P": "cross", "X": "x", "*": "star",
}  # fmt: skip
_DASHES = {"-": "solid", "--": "dash", "-.": "dashdot", ":": "dot"}


def build_payload(
    study: StudyData, comparisons: Sequence[Comparison], files: dict[str, str]
) -> dict[str, Any]:
    """Everything, rounded to what can be seen.

    Args:
        study: with its runs.
        comparisons: of the study.
        files: to download, by name.
    """
    groups = list(dict.fromkeys((c.model, c.task) for c in comparisons))
    group_of = {
        name: groups.index((c.model, c.task)) for c in comparisons for name in c.rows["run"]
    }
    methods = list(dict.fromkeys(m for c in comparisons for m in c.methods))
    pruners = [run.result.method for run in study.runs.values()]
    drawn = [name for name in dict.fromkeys([*methods, *pruners]) if name != UNPRUNED]
    layouts: list[dict[str, Any]] = []
    runs = [run_data(run, group_of.get(name), layouts) for name, run in study.runs.items()]
    settings = [
        dict(flat_settings({**run.settings, "signature": run.result.signatures}))
        for run in study.runs.values()
    ]
    shared = dict(set.intersection(*(set(of.items()) for of in settings))) if settings else {}
    for run, own in zip(runs, settings, strict=True):
        run["settings"] = {name: value for name, value in own.items() if name not in shared}
    return {
        "methods": methods,
        "looks": {name: _look(name, study.order) for name in drawn},
        "groups": [", ".join(group) for group in groups],
        "comparisons": [curve_data(c, groups.index((c.model, c.task))) for c in comparisons],
        "layouts": layouts,
        "runs": runs,
        "courses": _mean_courses(study, group_of),
        "settings": dict(sorted(shared.items())),
        "files": files,
    }


def embed(payload: dict[str, Any]) -> str:
    """As JSON that may stand inside a script element, whatever names are in it."""
    text = json.dumps(payload, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c")


def _look(method: str, among: Sequence[str]) -> dict[str, object]:
    """Colour, symbol and dashes as in the figures."""
    style: dict[str, Any] = look(method, among)
    dash = style["linestyle"]
    if not isinstance(dash, str):
        dash = ",".join(f"{2 * length}px" for length in dash[1])
    return {
        "color": style["color"],
        "symbol": _SYMBOLS[style["marker"]],
        "dash": _DASHES.get(dash, dash),
    }


def _mean_courses(study: StudyData, group_of: dict[str, int]) -> list[dict[str, Any]]:
    """By method, the mean course of its runs."""
    found: dict[tuple[int, str], list[Any]] = {}
    for name, run in study.runs.items():
        course = settled(run)
        if course is not None and name in group_of:
            found.setdefault((group_of[name], run.method), []).append(course)
    return [
        {"group": group, "method": method, "course": course_data(*mean_course(courses))}
        for (group, method), courses in found.items()
    ]
