"""The analyses in a study's folder, as sections of its page."""

from __future__ import annotations

from pathlib import Path

from headcount.analysis.base import Analysis
from headcount.analysis.store import find_analyses, shown
from headcount.errors import HeadcountError
from headcount.report.page.section import Grid, Picture, Section


def analysis_sections(folder: Path) -> tuple[list[Section], list[str]]:
    """A section for each analysis, and a sentence for each, or figure, that cannot be read.

    Args:
        folder: of the study.
    """
    found, problems = find_analyses(folder)
    return [_section(place, analysis, problems) for place, analysis in found.items()], problems


def _section(place: Path, analysis: Analysis, problems: list[str]) -> Section:
    table = analysis.table()
    pictures = []
    for path in sorted(place.glob("*.svg")):
        try:
            says = f"{analysis.title}: {path.stem.replace('-', ' ')}"
            pictures.append(Picture.read(path, says))
        except HeadcountError as error:
            problems.append(str(error))
    grid = Grid(f"{place.name}/table.csv", [str(name) for name in table.columns], shown(table))
    return Section(analysis.title, analysis.note, pictures=pictures, grids=[grid])
