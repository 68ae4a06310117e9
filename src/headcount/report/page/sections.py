"""The sections of the page, in order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from markupsafe import Markup

from headcount.analysis.course import settled
from headcount.errors import HeadcountError
from headcount.report.curves import gains
from headcount.report.page.section import Grid, Section, body
from headcount.report.table_text import OWN_COLUMNS, own_cells, unpruned_text
from headcount.report.tables import Cell, Table, cell_text, label, legend, seeds_text
from headcount.study.read import Comparison, StudyData

FOLDED = 8  # with more runs than that, there is a filter


def sections(
    study: StudyData,
    comparisons: Sequence[Comparison],
    tables: Sequence[Table],
    more: Sequence[Section],
    files: Sequence[str],
) -> Iterator[Section]:
    """All sections for which there is something to show.

    Args:
        study: with its runs.
        comparisons: of the study.
        tables: one per comparison.
        more: sections that others made; they come before the runs' settings.
        files: names of what can be downloaded.
    """
    runs = list(study.runs.values())
    groups = list(dict.fromkeys((c.model, c.task) for c in comparisons))
    one_each = [next(c for c in comparisons if (c.model, c.task) == group) for group in groups]
    yield Section("Results", grids=[grid for table in tables for grid in table_grids(table)])
    yield Section(
        "Metric by kept heads",
        "Mean over seeds, bars are one standard deviation; the dashed line is the unpruned model. "
        "The tables above have the same numbers.",
        body("curves"),
    )
    if any(run.mask is not None for run in runs):
        yield Section(
            "Map of heads",
            "A square is a head, a row a layer. The bluer, the more important to the method; "
            "kept heads have a frame and a dot.",
            body("head_map"),
        )
    if any(settled(run) is not None for run in runs):
        yield Section(
            "When the choice settles",
            "How many of the heads that a run keeps in the end are selected at each step. Thin "
            "lines are runs, thick ones the mean of a method.",
            body("dynamics"),
        )
    grids = list(_gain_grids(study, one_each))
    if grids:
        yield Section(
            "Speed and size",
            "Against the unpruned model, measured side by side on the same machine.",
            body("gains"),
            grids=grids,
        )
    if any(c.own_count["penalty"].notna().any() for c in comparisons):
        yield Section(
            "Heads by price",
            "How many heads are left when each costs λ. The tables above have the same numbers.",
            body("penalty"),
        )
    yield from more
    yield Section("Runs", body=body("runs", runs, len(runs) > FOLDED))
    yield Section("Downloads", body=body("downloads", files))


def _gain_grids(study: StudyData, comparisons: Sequence[Comparison]) -> Iterator[Grid]:
    """Means over all runs of a number of heads, one table per model and task."""
    for comparison in comparisons:
        found = gains(study, comparison)
        if found.empty:
            continue
        groups = found.groupby("heads")[["speed", "shrinkage"]].agg(["mean", "count"])
        rows = [
            [
                f"{heads:.0f}",
                f"{row['speed', 'mean']:+.1f}" if row["speed", "count"] else "not measured",
                f"{row['shrinkage', 'mean']:.1f}",
                f"{row['shrinkage', 'count']:.0f}",
            ]
            for heads, row in groups.sort_index(ascending=False).iterrows()
        ]
        yield Grid(
            f"{comparison.model}, {comparison.task}: mean over runs",
            ("heads", "speed-up, %", "fewer parameters, %", "runs"),
            rows,
        )


def headline(comparisons: Sequence[Comparison]) -> str:
    """The page's title."""
    groups = _listed(f"{c.model} on {c.task}" for c in comparisons)
    return f"Attention heads of {groups}"


def facts(study: StudyData, comparisons: Sequence[Comparison]) -> Iterator[tuple[str, str]]:
    """Terms and what they are in this study."""
    results = study.results
    settings = [run.settings for run in study.runs.values()]
    yield "Model", _listed(results["model"])
    yield "Task", _listed(results["task"])
    if data := _listed(of.get("data") for of in settings):
        yield "Data", data
    limits = _listed((of.get("training") or {}).get("limit_train") for of in settings)
    if limits:
        yield "Trained on", f"at most {limits} examples"
    yield "Evaluated on", _listed(_with_size(study, c) for c in comparisons)
    yield "Methods", _listed(m for c in comparisons for m in c.methods)
    counts = sorted({int(k) for c in comparisons for k in c.counted["k"]}, reverse=True)
    born = _listed(run.result.heads.before for run in study.runs.values())
    if counts:
        yield "Heads kept", _listed(counts) + (f" of {born}" if born else "")
    yield "Seeds", _listed(sorted(set(results["seed"])))
    yield "Runs", str(len(study.runs))


def _with_size(study: StudyData, comparison: Comparison) -> str:
    """The evaluation set, with its size where a run kept its predictions."""
    for name in comparison.rows["run"]:
        try:
            if name:
                examples = len(study.runs[name].predictions(comparison.split))
                return f"{comparison.split} ({examples:,} examples)"
        except HeadcountError:
            continue
    return comparison.split


def _listed(values: Iterable[object]) -> str:
    return ", ".join(dict.fromkeys(str(value) for value in values if value is not None))


def table_grids(table: Table) -> Iterator[Grid]:
    """Methods that were told how many heads to keep, then those that found their own number."""
    title = f"{table.title}: {label(table)}"
    unpruned = [] if table.unpruned is None else [unpruned_text(table)]
    if table.rows:
        rows = [
            [
                str(k),
                *(_cell(table.metric, cells.get(method)) for method in table.methods),
                seeds_text(list(cells.values())),
            ]
            for k, cells in table.rows.items()
        ]
        columns = ["heads", *table.methods, "seeds"]
        yield Grid(title, columns, rows, [*unpruned, legend(table)])
    if table.own_count:
        yield Grid(
            f"{title}, methods that found their own number of heads",
            [*OWN_COLUMNS, label(table), "seeds"],
            [own_cells(table, row) for row in table.own_count],
            [] if table.rows else unpruned,
        )


def _cell(metric: str, cell: Cell | None) -> str:
    if cell is None:
        return "–"
    text = cell_text(metric, cell)
    if cell.best:
        return Markup("<strong>{}</strong>").format(text)
    return text + ("†" if cell.worse else "")
