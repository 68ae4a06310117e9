"""The finding of a table in one sentence: which method, how many heads, at what cost.

The rule: look for the fewest heads with which any method stays within 1 % of the unpruned model,
and take the best method with that number. If none stays so close, take the best method with the
fewest heads, and say so. A method that finds its own number of heads counts with the mean of what
it found. `leading` says which evaluation set a report leads with.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from headcount.plots.style import metric_name
from headcount.report.tables import Cell, Table, build_table, is_of_harness
from headcount.stats.numbers import shown
from headcount.study.read import Comparison, StudyData

LOSS = 0.01  # the part of the metric that may be lost
_NAMED = 3  # methods; of more, the others are only counted


@dataclass(frozen=True)
class Finding:
    """What a table says.

    Attributes:
        about: names of the model, the task and the evaluation set.
        says: the finding, one sentence.
        more: what it rests on: the evaluation set, the seeds, and how close other methods come.
    """

    about: str
    says: str
    more: str


@dataclass(frozen=True)
class _Place:
    """What a method reached with some heads; of methods that find their own number, the mean."""

    method: str
    heads: float
    cell: Cell
    own: bool


def leading(study: StudyData, comparisons: Sequence[Comparison]) -> list[Comparison]:
    """The comparison that a report leads with, for each model and task.

    It is of the metric that decides, on the last evaluation set that the study itself measured: a
    study that chooses something does so on the first.
    """
    groups: dict[tuple[str, str], list[Comparison]] = {}
    for comparison in comparisons:
        groups.setdefault((comparison.model, comparison.task), []).append(comparison)
    return [_leader(study, group) for group in groups.values()]


def _leader(study: StudyData, group: list[Comparison]) -> Comparison:
    own = [one for one in group if not is_of_harness(study, one)] or group
    names = {name for one in own for name in one.rows["run"] if name}
    deciding = {study.runs[name].result.metric for name in names}
    return [one for one in own if one.metric in deciding or one.metric == own[0].metric][-1]


def find_all(study: StudyData) -> list[Finding]:
    """The finding of each model and task of a study."""
    tables = (build_table(study, one) for one in leading(study, list(study.comparisons())))
    return [found for table in tables if (found := find(table)) is not None]


def find(table: Table) -> Finding | None:
    """The finding of a table; None if no method has results."""
    places = list(_places(table))
    if not places:
        return None
    close = [place for place in places if _is_close(table, place.cell)]
    if close:
        fewest = min(place.heads for place in close)
        lead = _best(table, (place for place in close if place.heads == fewest))
        has = _listed([_heads(table, lead), *_gains(lead.cell)])
        says = f"{lead.method} {_keeps(table, lead.cell)} with {has}"
    else:
        lead = _best_with_fewest(table, places)
        says = _not_close(table, lead)
    return Finding(table.title, f"{says}.", " ".join(_more(table, lead)))


def _places(table: Table) -> Iterator[_Place]:
    for k, cells in table.rows.items():
        for method, cell in cells.items():
            yield _Place(method, k, cell, own=False)
    for row in table.own_count:
        yield _Place(row.method, row.heads, row.cell, own=True)


def _best(table: Table, places: Iterable[_Place]) -> _Place:
    sign = -1.0 if table.greater_is_better else 1.0
    return min(places, key=lambda place: sign * place.cell.mean)


def _best_with_fewest(table: Table, places: Sequence[_Place]) -> _Place:
    """With the fewest heads that were asked for; a price that takes all heads says little."""
    if not table.rows:
        return _best(table, places)
    fewest = min(table.rows)
    return _best(table, (place for place in places if not place.own and place.heads == fewest))


def _ratio(table: Table, cell: Cell) -> float | None:
    """The metric divided by that of the unpruned model; None if that says nothing."""
    if table.unpruned is None:
        return None
    whole = table.unpruned[1].mean
    return cell.mean / whole if whole > 0 and math.isfinite(whole) else None


def _is_close(table: Table, cell: Cell) -> bool:
    """Whether it is within 1 % of the unpruned model, as the finding's own digits have it."""
    ratio = _ratio(table, cell)
    if ratio is None:
        return False
    return round(ratio, 3) >= 1 - LOSS if table.greater_is_better else round(ratio, 2) <= 1 + LOSS


def _cost(table: Table, ratio: float) -> str:
    if table.greater_is_better:
        return f"{100 * ratio:.1f} %"
    return f"{ratio:.2f} times" if ratio < 100 else f"{ratio:,.0f} times"


def _keeps(table: Table, cell: Cell) -> str:
    ratio = _ratio(table, cell)
    assert ratio is not None  # of what is close
    cost, metric = _cost(table, ratio), metric_name(table.metric)
    if table.greater_is_better:
        return f"keeps {cost} of the unpruned {metric}"
    return f"has {cost} the unpruned {metric}"


def _not_close(table: Table, lead: _Place) -> str:
    heads = _heads(table, lead)
    fewest = "the fewest heads, " if not lead.own and len(table.rows) > 1 else ""
    where = f"with {fewest}{heads.removesuffix(' heads') if fewest else heads}"
    ratio, metric = _ratio(table, lead.cell), metric_name(table.metric)
    if ratio is None:
        value = shown(table.metric, lead.cell.mean)
        return f"{where[0].upper()}{where[1:]}, {lead.method} is best: {metric} {value}"
    missed = (
        f"No method keeps {100 * (1 - LOSS):g} % of the unpruned {metric}"
        if table.greater_is_better
        else f"No method stays within {100 * LOSS:g} % of the unpruned {metric}"
    )
    gains = _gains(lead.cell)
    result = _cost(table, ratio) + (f" with {_listed(gains)}" if gains else "")
    return f"{missed}; {where}, {lead.method} comes closest: {result}"


def _heads(table: Table, place: _Place) -> str:
    number = f"{place.heads:.1f}".removesuffix(".0")
    return f"{number} heads" if table.unpruned is None else f"{number} of {table.unpruned[0]} heads"


def _gains(cell: Cell) -> list[str]:
    gains = []
    if cell.size is not None:
        gains.append(f"{100 * cell.size:.0f} % of the parameters")
    if cell.speed is not None:
        gains.append(f"{cell.speed:.2f} times the speed")
    return gains


def _more(table: Table, lead: _Place) -> Iterator[str]:
    seeds = "one seed" if lead.cell.seeds == 1 else f"{lead.cell.seeds} seeds"
    yield f"Measured on {table.split}, {seeds}."
    if not lead.own:
        cells = table.rows[int(lead.heads)]
        yield f"With {lead.heads:g} heads, {_rivals(lead.method, cells)}."
    fewest = min(table.rows, default=lead.heads)
    if fewest < lead.heads:
        best = _best_with_fewest(table, list(_places(table)))
        ratio = _ratio(table, best.cell)
        cost = shown(table.metric, best.cell.mean) if ratio is None else _cost(table, ratio)
        rivals = _rivals(best.method, table.rows[int(fewest)])
        yield f"With the fewest heads, {fewest:g}, {best.method} is best with {cost}; {rivals}."


def _rivals(best: str, cells: dict[str, Cell]) -> str:
    """How close the other methods with the same number of heads come."""
    others = {method: cell for method, cell in cells.items() if method != best}
    if not others:
        return "no other method was run"
    untested = [method for method, cell in others.items() if not cell.best and not cell.tested]
    close = [m for m, cell in others.items() if m not in untested and not cell.worse]
    parts = []
    if close:
        parts.append(f"{_named(close)} {_be(close, 'is', 'are')} not significantly worse")
    if untested:
        names = "the others" if len(untested) == len(others) > 1 else _named(untested)
        parts.append(f"{names} {_be(untested, 'was', 'were')} not tested")
    worse = "every other method" if len(others) > 1 else next(iter(others))
    return " and ".join(parts) or f"{worse} is significantly worse"


def _be(methods: Sequence[str], one: str, many: str) -> str:
    return one if len(methods) == 1 else many


def _named(methods: Sequence[str]) -> str:
    """The first methods by their names, the others by their number."""
    rest = len(methods) - _NAMED
    others = [] if rest < 1 else [f"{rest} {'other' if rest == 1 else 'others'}"]
    return _listed([*methods[:_NAMED], *others])


def _listed(parts: Sequence[str]) -> str:
    *first, last = parts
    return f"{', '.join(first)} and {last}" if first else last
