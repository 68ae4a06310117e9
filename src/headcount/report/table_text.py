"""A table as text: Markdown, LaTeX, CSV and the terminal, and the parts that they share."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pandas as pd

from headcount.plots.style import axis_label, unit
from headcount.report.finding import find
from headcount.report.tables import Cell, OwnCount, Table
from headcount.runs.escape import markdown, markdown_row
from headcount.stats.significance import LEVEL

OWN_COLUMNS = ("method", "λ or goal", "heads found")


def grid(
    table: Table, show: Callable[[str, Cell | None], str]
) -> tuple[list[str], list[list[str]]]:
    """The columns and the rows of the methods that were told how many heads to keep.

    Methods are rows if there are more of them than numbers of heads, else they are columns.

    Args:
        table: the table.
        show: makes text of the name of the metric and a cell; None is a cell without a result.
    """
    texts = {
        (method, k): show(table.metric, cells.get(method))
        for k, cells in table.rows.items()
        for method in table.methods
    }
    if table.turned:
        columns = ["method", *(f"{k} heads" for k in table.rows), "seeds"]
        rows = []
        for method in table.methods:
            cells = [of[method] for of in table.rows.values() if method in of]
            rows.append([method, *(texts[method, k] for k in table.rows), seeds_text(cells)])
        return columns, rows
    return ["heads", *table.methods, "seeds"], [
        [str(k), *(texts[method, k] for method in table.methods), seeds_text(list(cells.values()))]
        for k, cells in table.rows.items()
    ]


def to_markdown(table: Table) -> str:
    """As Markdown, with the best in bold and † where a method is significantly worse."""
    lines = [f"**{markdown(label(table))}** – {markdown(table.title)}", ""]
    found = find(table)
    if found is not None:
        lines += [markdown(found.says), "", markdown(found.more), ""]
    if table.unpruned is not None:
        lines += [unpruned_text(table), ""]
    if table.rows:
        columns, rows = grid(table, _markdown_cell)
        lines += [markdown_row([markdown(name) for name in columns])]
        lines += [f"| {'---' if table.turned else '---:'} |" + " ---: |" * (len(columns) - 1)]
        lines += [markdown_row([markdown(name), *cells]) for name, *cells in rows]
        lines += ["", legend(table), ""]
    if table.own_count:
        lines += ["Methods that found their own number of heads:", ""]
        lines += [markdown_row([*OWN_COLUMNS, markdown(label(table)), "seeds"])]
        lines += ["| --- |" + " ---: |" * 4]
        for row in table.own_count:
            lines += [markdown_row([markdown(text) for text in own_cells(table, row)])]
        lines += [""]
    return "\n".join(lines)


def _markdown_cell(metric: str, cell: Cell | None) -> str:
    if cell is None:
        return "–"
    text = cell_text(metric, cell)
    return f"**{text}**" if cell.best else text + ("†" if cell.worse else "")


def to_terminal(table: Table) -> tuple[list[str], list[list[str]]]:
    """The columns after the first, and the rows; * is the best and † significantly worse."""
    columns, rows = grid(table, _plain_cell)
    return columns[1:], rows


def _plain_cell(metric: str, cell: Cell | None) -> str:
    if cell is None:
        return "–"
    return cell_text(metric, cell) + ("*" if cell.best else "†" if cell.worse else "")


def aside(table: Table) -> list[str]:
    """A line about the unpruned model, and one per method that finds its own number of heads."""
    lines = [] if table.unpruned is None else [unpruned_text(table)]
    for row in table.own_count:
        method, told, heads, text, seeds = own_cells(table, row)
        told = told if row.asked else f"λ = {told}"
        lines.append(f"{method}, {told}: {text} with {heads} heads (seeds: {seeds}).")
    return lines


def to_latex(table: Table) -> str:
    """As LaTeX; needs the package booktabs."""
    lines = [
        r"\begin{table}",
        r"  \centering",
        f"  \\caption{{{_escaped(_caption(table))}}}",
    ]
    if table.rows:
        columns, rows = grid(table, _latex_cell)
        heads = " & ".join(_escaped(text) for text in columns)
        lines += [
            f"  \\begin{{tabular}}{{{'l' if table.turned else 'r'}{'r' * (len(columns) - 1)}}}",
            r"    \toprule",
            rf"    {heads} \\",
            r"    \midrule",
        ]
        for name, *texts, seeds in rows:
            lines.append(rf"    {' & '.join([_escaped(name), *texts, _escaped(seeds)])} \\")
        lines += [r"    \bottomrule", r"  \end{tabular}"]
    if table.own_count:
        heads = " & ".join(
            ["method", r"$\lambda$ or goal", "heads found", _escaped(label(table)), "seeds"]
        )
        if table.rows:
            lines += [r"  \par\medskip"]
        lines += [
            r"  \begin{tabular}{lrrrr}",
            r"    \toprule",
            rf"    {heads} \\",
            r"    \midrule",
        ]
        for row in table.own_count:
            cells_text = [_escaped(text) for text in own_cells(table, row)]
            lines.append(rf"    {' & '.join(cells_text)} \\")
        lines += [r"    \bottomrule", r"  \end{tabular}"]
    return "\n".join([*lines, r"\end{table}", ""])


def _caption(table: Table) -> str:
    unpruned = "" if table.unpruned is None else f" {unpruned_text(table)}"
    signs = f" {legend(table)}" if table.rows else ""
    return f"{label(table)}; {table.title}.{unpruned}{signs}"


def _latex_cell(metric: str, cell: Cell | None) -> str:
    if cell is None:
        return "--"
    text = _escaped(cell_text(metric, cell))
    return f"\\textbf{{{text}}}" if cell.best else text + (r"$^\dagger$" if cell.worse else "")


def _escaped(text: str) -> str:
    """A text that LaTeX shows as it is, in one line: an empty line would end a caption."""
    signs = {
        "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
        "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
        "±": r"$\pm$", "†": r"$\dagger$", "–": "--", "<": "$<$", ">": "$>$", "λ": r"$\lambda$",
        "|": r"\textbar{}", "*": "{*}", "[": "{[}", "]": "{]}",  # after a row's end they mean more
    }  # fmt: skip
    return "".join(signs.get(sign, sign) for sign in " ".join(text.splitlines()))


def to_frame(table: Table) -> pd.DataFrame:
    """For programs: one row per number of heads and method, unrounded and complete."""
    rows = []
    if table.unpruned is not None:
        rows.append(_record(table, "unpruned", table.unpruned[0], table.unpruned[1]))
    for k, cells in table.rows.items():
        rows += [_record(table, method, k, cell) for method, cell in cells.items()]
    for own in table.own_count:
        rows.append(_record(table, own.method, own.heads, own.cell, own.penalty, own.asked))
    return pd.DataFrame(rows)


def _record(
    table: Table,
    method: str,
    heads: float,
    cell: Cell,
    penalty: float | None = None,
    asked: str = "",
) -> dict[str, object]:
    test = cell.against_best
    return {
        "heads": heads,
        "method": method,
        "lambda": penalty,
        "asked": asked,
        "metric": table.metric,
        "mean": cell.mean,
        "standard_deviation": cell.deviation,
        "seeds": cell.seeds,
        "best": cell.best,
        "p_value": None if test is None else test.p_value,
        "p_value_corrected": cell.corrected,
        "test": None if test is None else test.test,
        "pairs": None if test is None else test.n,
    }


def unpruned_text(table: Table) -> str:
    """One sentence about the unpruned model."""
    assert table.unpruned is not None
    heads, cell = table.unpruned
    many = "seed" if cell.seeds == 1 else "seeds"
    return f"Unpruned, {heads} heads: {cell_text(table.metric, cell)} ({cell.seeds} {many})."


def own_cells(table: Table, row: OwnCount) -> list[str]:
    """The cells of a row: `OWN_COLUMNS`, then the metric and the number of seeds."""
    told = row.asked or ("–" if row.penalty is None else f"{row.penalty:g}")
    text = cell_text(table.metric, row.cell)
    return [row.method, told, f"{row.heads:.1f}", text, str(row.cell.seeds)]


def cell_text(metric: str, cell: Cell) -> str:
    """Mean ± deviation; accuracies and correlations in percent."""
    text = f"{unit(metric) * cell.mean:.2f}"
    return text if cell.deviation is None else f"{text} ± {unit(metric) * cell.deviation:.2f}"


def seeds_text(cells: Sequence[Cell]) -> str:
    """The number of seeds of these cells, or the smallest and the largest number."""
    counts = sorted({cell.seeds for cell in cells})
    return str(counts[0]) if len(counts) == 1 else f"{counts[0]}–{counts[-1]}"


def legend(table: Table, best: str = "in bold the best with that number of heads") -> str:
    """What the signs and the order mean; `best` says how the table marks the best."""
    tests = {
        cell.against_best.test
        for cells in table.rows.values()
        for cell in cells.values()
        if cell.against_best is not None
    }
    parts = ["Mean over seeds"]
    if any(cell.deviation is not None for row in table.rows.values() for cell in row.values()):
        parts[0] += " ± standard deviation"
    parts.append(best)
    if tests:
        parts.append(
            f"† worse than the best, p < {LEVEL:g} ({'; '.join(sorted(tests))}; over the seeds "
            "whose predictions both have, corrected by Holm's method for all methods with that "
            "number of heads)"
        )
    if len(table.methods) > 1:
        parts.append("methods are sorted by their mean distance from the best")
    return "; ".join(parts) + "."


def label(table: Table) -> str:
    """The metric of a table with its unit."""
    return axis_label(table.metric)
