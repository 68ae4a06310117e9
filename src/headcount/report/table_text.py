"""A table as text: Markdown, LaTeX, CSV and the terminal, and the parts that they share."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from headcount.plots.style import axis_label, unit
from headcount.report.tables import Cell, OwnCount, Table
from headcount.runs.escape import markdown, markdown_row
from headcount.stats.significance import LEVEL

OWN_COLUMNS = ("method", "λ or goal", "heads found")
_BESIDE = 5  # methods that fit side by side on a screen


def to_markdown(table: Table) -> str:
    """As Markdown, with the best in bold and † where a method is significantly worse."""
    lines = [f"**{markdown(label(table))}** – {markdown(table.title)}", ""]
    if table.unpruned is not None:
        lines += [unpruned_text(table), ""]
    if table.rows:
        lines += [markdown_row(["heads", *map(markdown, table.methods), "seeds"])]
        lines += ["|" + " ---: |" * (len(table.methods) + 2)]
        for k, cells in table.rows.items():
            texts = [_markdown_cell(table, cells.get(method)) for method in table.methods]
            lines += [markdown_row([str(k), *texts, seeds_text(list(cells.values()))])]
        lines += ["", legend(table), ""]
    if table.own_count:
        lines += ["Methods that found their own number of heads:", ""]
        lines += [markdown_row([*OWN_COLUMNS, markdown(label(table)), "seeds"])]
        lines += ["| --- |" + " ---: |" * 4]
        for row in table.own_count:
            lines += [markdown_row([markdown(text) for text in own_cells(table, row)])]
        lines += [""]
    return "\n".join(lines)


def _markdown_cell(table: Table, cell: Cell | None) -> str:
    if cell is None:
        return "–"
    text = cell_text(table.metric, cell)
    return f"**{text}**" if cell.best else text + ("†" if cell.worse else "")


def to_terminal(table: Table) -> tuple[list[str], list[list[str]]]:
    """The columns after the first, and the rows; * is the best and † significantly worse.

    If there are too many methods for the width of a screen, they become rows.
    """
    seeds = [seeds_text(list(cells.values())) for cells in table.rows.values()]
    texts = [
        [_plain_cell(table, cells.get(method)) for method in table.methods]
        for cells in table.rows.values()
    ]
    if len(table.methods) <= max(_BESIDE, len(table.rows)):
        names = [str(k) for k in table.rows]
        rows = [[k, *row, n] for k, row, n in zip(names, texts, seeds, strict=True)]
        return [*table.methods, "seeds"], rows
    turned = zip(table.methods, zip(*texts, strict=True), strict=True)
    rows = [[method, *row] for method, row in turned]
    return [f"{k} heads" for k in table.rows], [*rows, ["seeds", *seeds]]


def _plain_cell(table: Table, cell: Cell | None) -> str:
    if cell is None:
        return "–"
    return cell_text(table.metric, cell) + ("*" if cell.best else "†" if cell.worse else "")


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
        heads = " & ".join(_escaped(text) for text in ("heads", *table.methods, "seeds"))
        lines += [
            f"  \\begin{{tabular}}{{r{'r' * len(table.methods)}r}}",
            r"    \toprule",
            rf"    {heads} \\",
            r"    \midrule",
        ]
        for k, cells in table.rows.items():
            texts = [_latex_cell(table, cells.get(method)) for method in table.methods]
            seeds = _escaped(seeds_text(list(cells.values())))
            lines.append(rf"    {' & '.join([str(k), *texts, seeds])} \\")
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


def _latex_cell(table: Table, cell: Cell | None) -> str:
    if cell is None:
        return "--"
    text = _escaped(cell_text(table.metric, cell))
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
    """The number of seeds in a row, or the smallest and the largest number."""
    counts = sorted({cell.seeds for cell in cells})
    return str(counts[0]) if len(counts) == 1 else f"{counts[0]}–{counts[-1]}"


def legend(table: Table, best: str = "best of each row in bold") -> str:
    """What the signs in a table mean; `best` says how it marks the best."""
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
            "whose predictions both have, corrected by Holm's method within the row)"
        )
    return "; ".join(parts) + "."


def label(table: Table) -> str:
    """The metric of a table with its unit."""
    return axis_label(table.metric)
