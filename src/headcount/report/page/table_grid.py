"""The papers' table for the page: best in bold, † on what is significantly worse."""

from __future__ import annotations

from collections.abc import Iterator

from markupsafe import Markup

from headcount.report.page.section import Grid
from headcount.report.table_text import OWN_COLUMNS, own_cells, unpruned_text
from headcount.report.tables import Cell, Table, cell_text, label, legend, seeds_text


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
