"""Write the tables, figures and page of a study into its folder.

The page also shows the analyses that were saved in the study's folder, see `analysis_sections`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from matplotlib.figure import Figure

from headcount.analysis.base import Analysis, find_analyses, shown
from headcount.analysis.settling import draw_dynamics
from headcount.errors import HeadcountError
from headcount.plots.style import save
from headcount.report.curves import (
    draw_gain_by_heads,
    draw_gain_by_metric,
    draw_metric,
    draw_penalty,
)
from headcount.report.finding import Finding, find, leading
from headcount.report.layers import ONE_KIND, draw_kinds, draw_layers
from headcount.report.own_files import put_in_place, written_aside
from headcount.report.page.page import FILE as PAGE
from headcount.report.page.page import write_page
from headcount.report.page.sections import Grid, Picture, Section
from headcount.report.table_text import to_frame, to_latex, to_markdown
from headcount.report.tables import Table, build_table, ranking
from headcount.runs.escape import csv_text, write_names
from headcount.study.read import Comparison, StudyData, read_study

FOLDER = "report"


@dataclass
class Report:
    """What a report consists of.

    Attributes:
        folder: where it is written.
        tables: one per model, task, metric and evaluation set; first those that findings are of.
        findings: what was found, one per model and task, see `finding.leading`.
        written: paths of all written files.
        notes: sentences about what is missing or broken.
        left_out: sentences about figures that would show nothing, and why.
        sections: sections to add to the page's own.
        texts: the tables as text, by file name.
    """

    folder: Path
    tables: list[Table] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    written: list[Path] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    sections: list[Section] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)


def write_report(
    folder: str | Path, methods: Sequence[str] = (), output: str | Path | None = None
) -> Report:
    """Write the tables, figures and page of a study.

    Args:
        folder: folder of the study.
        methods: names of the methods to show, see `read_study`; empty shows all.
        output: folder for `tables`, `figures` and `report.html`; None takes `report` in the
            study's folder. Files there that no report wrote are refused, not written over.
    """
    study = read_study(folder, methods)
    report = Report(
        study.folder / FOLDER if output is None else Path(output), notes=list(study.problems)
    )
    try:
        with written_aside(report.folder) as scratch:
            _write(study, report, scratch)
            put_in_place(scratch, report.folder)
            report.written = [report.folder / path.relative_to(scratch) for path in report.written]
    except OSError as error:
        raise HeadcountError(
            f"{report.folder} cannot be written: {error.strerror or error}; make room, or give "
            "another folder as --output"
        ) from error
    return report


def _write(study: StudyData, report: Report, folder: Path) -> None:
    """Write everything into a folder, which is not yet the report's own."""
    tables, figures = (folder / part for part in ("tables", "figures"))
    comparisons = list(study.comparisons())
    names = _names(comparisons)
    leaders = leading(study, comparisons)
    comparisons = [*leaders, *(c for c in comparisons if not any(c is one for one in leaders))]
    for comparison in comparisons:
        _write_tables(study, comparison, tables / names[id(comparison)], report)
    found = [find(table) for table in report.tables[: len(leaders)]]
    report.findings = [one for one in found if one is not None]
    seen = set()
    for comparison, table in zip(comparisons, report.tables, strict=True):
        whole = (comparison.model, comparison.task)
        _draw_split(study, comparison, figures, names[id(comparison)], report)
        if whole not in seen:  # the same for all evaluation sets of a task
            seen.add(whole)
            methods = ranking(table, comparison)
            prefix = _prefix(comparison, comparisons)
            _draw_whole(study, comparison, methods, figures, prefix, report)
    analysed, unreadable = analysis_sections(study.folder)
    report.sections += analysed
    report.notes += unreadable
    page = folder / PAGE
    write_page(
        page, study, comparisons, report.tables, report.findings, report.texts, report.notes,
        report.sections,
    )  # fmt: skip
    report.written.append(page)


def _names(comparisons: list[Comparison]) -> dict[int, str]:
    """File names: the evaluation set, after model, task and metric if there are several."""
    names = {}
    for comparison in comparisons:
        same = [c for c in comparisons if (c.model, c.task) == (comparison.model, comparison.task)]
        metric = f"{comparison.metric}-" if len({c.metric for c in same}) > 1 else ""
        name = f"{_prefix(comparison, comparisons)}{_slug(metric)}{_slug(comparison.split)}"
        names[id(comparison)] = name
    return names


def _prefix(comparison: Comparison, comparisons: list[Comparison]) -> str:
    several = len({(c.model, c.task) for c in comparisons}) > 1
    return f"{_slug(comparison.model)}-{_slug(comparison.task)}-" if several else ""


def _slug(text: str) -> str:
    return re.sub(r"[^\w.-]+", "-", text)


def _write_tables(study: StudyData, comparison: Comparison, stem: Path, report: Report) -> None:
    table = build_table(study, comparison)
    report.tables.append(table)
    report.notes += table.notes
    frame = to_frame(table)
    texts = {
        "md": to_markdown(table),
        "tex": to_latex(table),
        "csv": csv_text(frame.columns, frame.itertuples(index=False, name=None)),
    }
    for ending, text in texts.items():
        path = stem.with_name(f"{stem.name}.{ending}")
        write_names(path, text)
        report.written.append(path)
        report.texts[path.name] = text


def _draw_split(
    study: StudyData, comparison: Comparison, folder: Path, name: str, report: Report
) -> None:
    """Draw the figures of one evaluation set."""
    _put(draw_metric(comparison), folder / f"metric-{name}", report)
    _put(draw_metric(comparison, few=True), folder / f"metric-few-heads-{name}", report)
    _put(draw_gain_by_metric(study, comparison), folder / f"gain-by-metric-{name}", report)


def _draw_whole(
    study: StudyData,
    comparison: Comparison,
    methods: Sequence[str],
    folder: Path,
    prefix: str,
    report: Report,
) -> None:
    """Draw the figures that all evaluation sets of a task share; the best method's first."""
    _put(draw_penalty(comparison), folder / f"{prefix}heads-by-lambda", report)
    _put(draw_gain_by_heads(study, comparison), folder / f"{prefix}gain-by-heads", report)
    _put(draw_dynamics(study, comparison), folder / f"{prefix}training-dynamics", report)
    pictures = []
    for method in methods:
        stem = folder / f"{prefix}layers-{_slug(method)}"
        says = f"Heads that {method} keeps, layers down, numbers of heads across."
        pictures += _put(draw_layers(study, comparison, method), stem, report, says)
    drawn = {f"kinds-{_slug(m)}": draw_kinds(study, comparison, m) for m in methods}
    if set(drawn.values()) == {ONE_KIND}:
        drawn = {"kinds": ONE_KIND}  # said once, not per method
    for name, figure in drawn.items():
        says = f"Kept heads of each kind of attention against all kept heads: {name}."
        pictures += _put(figure, folder / f"{prefix}{name}", report, says)
    if pictures:
        which = f": {comparison.model}, {comparison.task}" if prefix else ""
        title = f"Where the kept heads are{which}"
        report.sections.append(Section(title, "Mean over seeds.", pictures=pictures))


def _put(figure: Figure | str, stem: Path, report: Report, says: str = "") -> list[Picture]:
    """Save a figure and return it for the page, or note why there is none."""
    if isinstance(figure, str):
        report.left_out.append(f"figure {stem.name} is left out: {figure}")
        return []
    report.written += save(figure, stem)
    return [Picture.read(stem.with_name(f"{stem.name}.svg"), says)]


def analysis_sections(folder: Path) -> tuple[list[Section], list[str]]:
    """A section per saved analysis, and a sentence about each file that cannot be read.

    Args:
        folder: folder of the study.
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
