"""Write `report.html`: everything inlined, so that the file can be mailed and opened anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup
from plotly.offline import get_plotlyjs

from headcount.atomic import write_whole
from headcount.report.page.payload import build_payload, embed
from headcount.report.page.section import TEMPLATES, Section, render, told_apart
from headcount.report.page.sections import facts, headline, sections
from headcount.report.tables import Table
from headcount.study.read import Comparison, StudyData
from headcount.study.results import FILE as RESULTS

FILE = "report.html"
_SCRIPTS = ("shared.js", "figures.js", "map.js", "page.js")
_HERE = Path(__file__).parent


def write_page(
    path: Path,
    study: StudyData,
    comparisons: Sequence[Comparison],
    tables: Sequence[Table],
    texts: dict[str, str],
    notes: Sequence[str],
    more: Sequence[Section] = (),
) -> None:
    """Write the page, whole or not at all.

    Args:
        path: of the file.
        study: with its runs.
        comparisons: of the study.
        tables: one per comparison.
        texts: the tables as files to download, by name.
        notes: what is missing or broken.
        more: sections beside the page's own.
    """
    results = (study.folder / RESULTS).read_text(encoding="utf-8")
    files = {**texts, RESULTS: results}
    parts = told_apart(sections(study, comparisons, tables, more, list(files)))
    text = TEMPLATES.get_template("page.html").render(
        title=headline(comparisons),
        facts=list(facts(study, comparisons)),
        notes=notes,
        sections=parts,
        render=render,
        css=_inlined("page.css"),
        js=_inlined(*_SCRIPTS),
        plotly=Markup(get_plotlyjs()),
        payload=Markup(embed(build_payload(study, comparisons, files))),
    )
    write_whole(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def _inlined(*names: str) -> str:
    return Markup("\n".join((_HERE / name).read_text(encoding="utf-8") for name in names))
