"""The sections of the page, in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headcount.report.figures.dynamics import settled
from headcount.report.figures.efficiency import gains
from headcount.report.page.section import Grid, Section, body
from headcount.report.page.table_grid import table_grids
from headcount.report.study_data import Comparison, StudyData
from headcount.report.tables import Table

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
