"""What an analysis is, and how its folder is written, read again and found by the report.

An analysis is a small typed result with a table, figures and a note. Its folder holds them all.
"""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import pandas as pd
from matplotlib.figure import Figure
from pydantic import TypeAdapter

from headcount.atomic import new_folder, refuse_existing
from headcount.errors import HeadcountError
from headcount.plots.style import save
from headcount.runs.escape import csv_text, markdown, markdown_row, write_names

FILE, TABLE = "analysis.json", "table"
FOLDER = "analyses"  # inside a study's folder, where its report looks for analyses
_FORMAT = "headcount analysis 1"


class Analysis(ABC):
    """What was found out about the heads of a model.

    Every analysis is a frozen dataclass. Its fields hold only what JSON can hold: numbers, texts,
    tuples, and dataclasses of these. So one analysis is one file.

    Attributes:
        kind: the name of this kind of analysis, on the command line and in files.
    """

    kind: ClassVar[str]

    @property
    @abstractmethod
    def title(self) -> str:
        """One line: the question, the model and the data."""

    @property
    @abstractmethod
    def note(self) -> str:
        """A few sentences: what was found and how it was measured."""

    @abstractmethod
    def table(self) -> pd.DataFrame:
        """The numbers, one row per thing measured, unrounded."""

    @abstractmethod
    def figures(self) -> Mapping[str, Figure]:
        """The figures by file name; empty if there is nothing to draw."""


def save_analysis(analysis: Analysis, folder: Path) -> None:
    """Write a new folder with the result, its table as CSV and Markdown, and its figures.

    Args:
        analysis: the result to save.
        folder: a path that does not exist yet. Choose one inside a study's `analyses` folder, and
            the study's report shows the analysis.
    """
    refuse_bad_place(folder)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HeadcountError(
            f"{folder} cannot be written: {error.strerror or error}; give another folder"
        ) from error
    with new_folder(folder) as scratch:
        text = TypeAdapter(type(analysis)).dump_python(analysis, mode="json")
        content = {"format": _FORMAT, "kind": analysis.kind, "result": text}
        (scratch / FILE).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        table = analysis.table()
        cells = table.itertuples(index=False, name=None)
        write_names(scratch / f"{TABLE}.csv", csv_text(table.columns, cells))
        about = [f"# {markdown(analysis.title)}", "", markdown(analysis.note), ""]
        lines = [*about, *_markdown_table(table), ""]
        write_names(scratch / f"{TABLE}.md", "\n".join(lines))
        for name, figure in analysis.figures().items():
            save(figure, scratch / name)


def load_analysis(folder: Path) -> Analysis:
    """Read what `save_analysis` wrote."""
    from headcount.analysis import KINDS  # which itself imports this module

    try:
        content = json.loads((folder / FILE).read_text(encoding="utf-8"))
        if content["format"] != _FORMAT:
            raise ValueError(f"it has the format {content['format']}, expected {_FORMAT}")
        kind = KINDS[content["kind"]]
        # Validated as JSON, so that lists are taken for tuples and NaN is read.
        read: Analysis = TypeAdapter(kind).validate_json(json.dumps(content["result"]))
        return read
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise HeadcountError(
            f"{folder} has no readable {FILE}: {str(error).splitlines()[0]}; give a folder that an "
            "analysis of headcount wrote"
        ) from error


def find_analyses(folder: Path) -> tuple[dict[Path, Analysis], list[str]]:
    """A study's analyses by folder, and a sentence about each that cannot be read."""
    found, problems = {}, []
    for path in sorted(folder.glob(f"{FOLDER}/*/{FILE}")):
        try:
            found[path.parent] = load_analysis(path.parent)
        except HeadcountError as error:
            problems.append(str(error))
    return found, problems


def refuse_bad_place(folder: Path) -> None:
    """Raise before the work begins if the analysis could not be saved afterwards.

    Args:
        folder: where to save. It must not exist; its parent folders need not exist either.
    """
    refuse_existing(folder)
    above = next(parent for parent in folder.absolute().parents if parent.exists())
    if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
        why = "may not be written to" if above.is_dir() else "is not a folder"
        raise HeadcountError(f"{folder} cannot be written: {above} {why}; give another folder")


def shown(table: pd.DataFrame) -> list[list[str]]:
    """The cells of a table for a reader, with at most four significant digits."""
    return [[_short(cell) for cell in row] for row in table.itertuples(index=False, name=None)]


def _short(cell: object) -> str:
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if cell is None or (isinstance(cell, float) and pd.isna(cell)):
        return "–"
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell)


def _markdown_table(table: pd.DataFrame) -> list[str]:
    names, *rows = ([markdown(cell) for cell in row] for row in (table.columns, *shown(table)))
    return [markdown_row(row) for row in (names, ["---"] * len(names), *rows)]
