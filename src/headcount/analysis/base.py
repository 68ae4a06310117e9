"""What all analyses are: a small typed result with a table, figures and a note."""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pandas as pd
from pydantic import TypeAdapter

from headcount.errors import HeadcountError
from headcount.loading.folder import new_folder
from headcount.plots.style import save

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


class Analysis(ABC):
    """What was found out about the heads of a model.

    Every analysis is a frozen dataclass of numbers, texts, tuples and such dataclasses: what JSON
    can hold, so that one analysis is one file.

    Attributes:
        kind: its name on the command line and in files.
    """

    kind: ClassVar[str]

    @property
    @abstractmethod
    def title(self) -> str:
        """What was asked, of which model and data, in a line."""

    @property
    @abstractmethod
    def note(self) -> str:
        """What was found and how it was measured, in a few sentences."""

    @abstractmethod
    def table(self) -> pd.DataFrame:
        """The numbers, one row per thing that was measured, nothing rounded."""

    @abstractmethod
    def figures(self) -> Mapping[str, Figure]:
        """Figures by the name of their file; none where there is nothing to see."""


FILE, TABLE = "analysis.json", "table"
FOLDER = "analyses"  # of a study, where its report finds them
_FORMAT = "headcount analysis 1"


def refuse_bad_place(folder: Path) -> None:
    """Tell before the work, not after, that an analysis cannot be saved there.

    Args:
        folder: must not exist; neither need those above.
    """
    if folder.exists():
        raise HeadcountError(f"{folder} exists already; give a new folder for the output")
    above = next(parent for parent in folder.absolute().parents if parent.exists())
    if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
        why = "may not be written to" if above.is_dir() else "is not a folder"
        raise HeadcountError(f"{folder} cannot be written: {above} {why}; give another folder")


def save_analysis(analysis: Analysis, folder: Path) -> None:
    """Write a new folder with the result, its table as CSV and Markdown, and its figures.

    Args:
        analysis: any.
        folder: must not exist; inside `analyses` of a study, its report shows it.
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
        table.to_csv(scratch / f"{TABLE}.csv", index=False, lineterminator="\n")
        lines = [f"# {analysis.title}", "", analysis.note, "", *_markdown(table), ""]
        (scratch / f"{TABLE}.md").write_text("\n".join(lines), encoding="utf-8")
        for name, figure in analysis.figures().items():
            save(figure, scratch / name)


def load_analysis(folder: Path) -> Analysis:
    """Read what `save_analysis` wrote."""
    from headcount.analysis import KINDS

    try:
        content = json.loads((folder / FILE).read_text(encoding="utf-8"))
        if content["format"] != _FORMAT:
            raise ValueError(f"it has the format {content['format']}, expected {_FORMAT}")
        kind = KINDS[content["kind"]]
        # JSON has no tuples and no NaN but those that it is told of.
        read: Analysis = TypeAdapter(kind).validate_json(json.dumps(content["result"]))
        return read
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise HeadcountError(
            f"{folder} has no readable {FILE}: {str(error).splitlines()[0]}; give a folder that an "
            "analysis of headcount wrote"
        ) from error


def find_analyses(folder: Path) -> tuple[dict[Path, Analysis], list[str]]:
    """The analyses of a study by their folders, and a sentence for each that cannot be read."""
    found, problems = {}, []
    for path in sorted(folder.glob(f"{FOLDER}/*/{FILE}")):
        try:
            found[path.parent] = load_analysis(path.parent)
        except HeadcountError as error:
            problems.append(str(error))
    return found, problems


def shown(table: pd.DataFrame) -> list[list[str]]:
    """The cells of a table for a person: at most four digits that say something."""
    return [[_short(cell) for cell in row] for row in table.itertuples(index=False, name=None)]


def _short(cell: object) -> str:
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if cell is None or (isinstance(cell, float) and pd.isna(cell)):
        return "–"
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell)


def _markdown(table: pd.DataFrame) -> list[str]:
    rows = [[str(name) for name in table.columns], ["---"] * len(table.columns), *shown(table)]
    return ["| " + " | ".join(text.replace("|", "\\|") for text in row) + " |" for row in rows]
