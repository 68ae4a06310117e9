"""Names in files that other programs open: no name may become a formula, HTML or a new cell.

Names of models, variants and evaluation sets come from folders and files of others. Spreadsheets
run a cell that looks like a formula, and Markdown may hold HTML.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from headcount.atomic import write_atomically

# After OWASP's "CSV Injection". Spreadsheets also read the wide forms of East Asian keyboards.
_FORMULA = re.compile(r"[ ']*[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")
_MARKDOWN = re.compile(
    r"[\\`*\[\]|~$#]"
    r"|(?<![^\W_])_|_(?![^\W_])"  # inside a word it means nothing, and is read more easily
)
_HTML = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


def csv_text(columns: Iterable[object], rows: Iterable[Iterable[object]]) -> str:
    """A table as CSV in which no text is a formula; numbers stay numbers.

    Args:
        columns: the names of the columns.
        rows: the cells of each row; None and NaN are left empty.
    """
    return "".join(",".join(map(_csv_cell, row)) + "\n" for row in (columns, *rows))


def _csv_cell(cell: object) -> str:
    """One cell; a text that a spreadsheet would run gets an apostrophe in front."""
    if not isinstance(cell, str):
        text = "" if _is_missing(cell) else str(cell)
    else:
        text = f"'{cell}" if _FORMULA.match(cell) else cell
    # Not by Python's own writer: before 3.13 it leaves a carriage return unquoted, and what comes
    # after it would be a row.
    return '"' + text.replace('"', '""') + '"' if re.search('[",\r\n]', text) else text


def _is_missing(cell: object) -> bool:
    """Whether a cell is None, NaN, or what pandas puts there."""
    return cell is None or str(cell) in ("nan", "<NA>", "NaT")


def read_csv_cell(text: str) -> str:
    """The text that `csv_text` wrote as this cell."""
    return text[1:] if text.startswith("'") and _FORMULA.match(text) else text


def markdown(text: str) -> str:
    """A text that Markdown shows as it is, in one line; also inside a table."""
    line = _MARKDOWN.sub(r"\\\g<0>", " ".join(text.splitlines()))
    return "".join(_HTML.get(sign, sign) for sign in line)


def markdown_row(cells: Sequence[str]) -> str:
    """A row of a Markdown table, from cells that are Markdown already."""
    return f"| {' | '.join(cells)} |"


def markdown_code(text: str) -> str:
    """A text as code inside a line of Markdown, whatever backticks it has."""
    line = " ".join(text.splitlines())
    fence = "`" * (1 + max(map(len, re.findall("`+", line)), default=0))
    return f"`{line}`" if fence == "`" else f"{fence} {line} {fence}"


def write_names(path: Path, text: str) -> None:
    """Write a text with names in it, whole or not at all, the same bytes on every system.

    A folder's name may have bytes that are no UTF-8. They are written as Python shows them.
    """
    content = text.encode("utf-8", errors="backslashreplace")
    write_atomically(path, lambda scratch: scratch.write_bytes(content))
