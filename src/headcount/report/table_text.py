"""A table as Markdown, LaTeX and CSV."""

from __future__ import annotations

import pandas as pd

from headcount.report.tables import Cell, OwnCount, Table, cell_text, label, legend, seeds_text

_BESIDE = 5  # methods that a screen has room for
OWN_COLUMNS = ("method", "λ", "heads found")


def to_markdown(table: Table) -> str:
    """With the best in bold and † on what is significantly worse."""
    lines = [f"**{label(table)}** – {table.title}", ""]
    if table.unpruned is not None:
        lines += [unpruned_text(table), ""]
    if table.rows:
        lines += _markdown_row(["heads", *table.methods, "seeds"])
        lines += ["|" + " ---: |" * (len(table.methods) + 2)]
        for k, cells in table.rows.items():
            texts = [_markdown_cell(table, cells.get(method)) for method in table.methods]
            lines += _markdown_row([str(k), *texts, seeds_text(list(cells.values()))])
        lines += ["", legend(table), ""]
    if table.own_count:
        lines += ["Methods that found their own number of heads:", ""]
        lines += _markdown_row([*OWN_COLUMNS, label(table), "seeds"])
        lines += ["| --- |" + " ---: |" * 4]
        for row in table.own_count:
            lines += _markdown_row(own_cells(table, row))
        lines += [""]
    return "\n".join(lines)


def to_terminal(table: Table) -> tuple[list[str], list[list[str]]]:
    """Columns after the first, and rows; * is the best and † significantly worse.

    Many methods stand below each other, because a screen is not wide enough for them.
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


def aside(table: Table) -> list[str]:
    """The unpruned model and the methods that found their own number of heads, a line each."""
    lines = [] if table.unpruned is None else [unpruned_text(table)]
    for row in table.own_count:
        method, penalty, heads, text, seeds = own_cells(table, row)
        lines.append(f"{method}, λ = {penalty}: {text} with {heads} heads (seeds: {seeds}).")
    return lines


def to_latex(table: Table) -> str:
    """For booktabs."""
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
        heads = " & ".join(["method", r"$\lambda$", "heads found", _escaped(label(table)), "seeds"])
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


def to_frame(table: Table) -> pd.DataFrame:
    """One row per number of heads and method, for programs: nothing rounded, nothing left out."""
    rows = []
    if table.unpruned is not None:
        rows.append(_record(table, "unpruned", table.unpruned[0], table.unpruned[1]))
    for k, cells in table.rows.items():
        rows += [_record(table, method, k, cell) for method, cell in cells.items()]
    for own in table.own_count:
        rows.append(_record(table, own.method, own.heads, own.cell, own.penalty))
    return pd.DataFrame(rows)


def _record(
    table: Table, method: str, heads: float, cell: Cell, penalty: float | None = None
) -> dict[str, object]:
    test = cell.against_best
    return {
        "heads": heads,
        "method": method,
        "lambda": penalty,
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


def _caption(table: Table) -> str:
    unpruned = "" if table.unpruned is None else f" {unpruned_text(table)}"
    signs = f" {legend(table)}" if table.rows else ""
    return f"{label(table)}; {table.title}.{unpruned}{signs}"


def unpruned_text(table: Table) -> str:
    """One sentence on the unpruned model."""
    assert table.unpruned is not None
    heads, cell = table.unpruned
    many = "seed" if cell.seeds == 1 else "seeds"
    return f"Unpruned, {heads} heads: {cell_text(table.metric, cell)} ({cell.seeds} {many})."


def own_cells(table: Table, row: OwnCount) -> list[str]:
    """A row below `OWN_COLUMNS`, the metric and the number of seeds."""
    penalty = "–" if row.penalty is None else f"{row.penalty:g}"
    text = cell_text(table.metric, row.cell)
    return [row.method, penalty, f"{row.heads:.1f}", text, str(row.cell.seeds)]


def _markdown_row(texts: list[str]) -> list[str]:
    return ["| " + " | ".join(text.replace("|", "\\|") for text in texts) + " |"]


def _markdown_cell(table: Table, cell: Cell | None) -> str:
    if cell is None:
        return "–"
    text = cell_text(table.metric, cell)
    return f"**{text}**" if cell.best else text + ("†" if cell.worse else "")


def _plain_cell(table: Table, cell: Cell | None) -> str:
    if cell is None:
        return "–"
    return cell_text(table.metric, cell) + ("*" if cell.best else "†" if cell.worse else "")


def _latex_cell(table: Table, cell: Cell | None) -> str:
    if cell is None:
        return "--"
    text = _escaped(cell_text(table.metric, cell))
    return f"\\textbf{{{text}}}" if cell.best else text + (r"$^\dagger$" if cell.worse else "")


def _escaped(text: str) -> str:
    signs = {
        "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
        "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
        "±": r"$\pm$", "†": r"$\dagger$", "–": "--", "<": "$<$", "λ": r"$\lambda$",
    }  # fmt: skip
    return "".join(signs.get(sign, sign) for sign in text)
