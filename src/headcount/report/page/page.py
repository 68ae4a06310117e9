"""Write `report.html`: everything is inlined, so that the file can be mailed and opened anywhere.

The page has a headline, the findings, the facts of the study, notes, and sections (`sections.py`).
Its scripts draw from one JSON value (`payload.py`).
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path

from markupsafe import Markup
from plotly.offline import get_plotlyjs

from headcount.errors import HeadcountError
from headcount.report.finding import Finding
from headcount.report.page.payload import build_payload, embed
from headcount.report.page.sections import TEMPLATES, Section, render, sections, told_apart
from headcount.report.tables import Table
from headcount.runs.escape import write_names
from headcount.study.read import Comparison, StudyData
from headcount.study.results import FILE as RESULTS

FILE = "report.html"
_SCRIPTS = ("shared.js", "legend.js", "figures.js", "map.js", "page.js")
_NAMED = 6  # methods; of more, the head of the page has only the number
_HERE = Path(__file__).parent


def write_page(
    path: Path,
    study: StudyData,
    comparisons: Sequence[Comparison],
    tables: Sequence[Table],
    findings: Sequence[Finding],
    texts: dict[str, str],
    notes: Sequence[str],
    more: Sequence[Section] = (),
) -> None:
    """Write the page; an interrupted write leaves no partial file.

    Args:
        path: where to write the page.
        study: the study with its runs.
        comparisons: the results of the study, one per model, task and evaluation set; first those
            that the page leads with, see `finding.leading`.
        tables: one table per comparison.
        findings: what the first tables say.
        texts: the tables as files to download, by file name.
        notes: sentences about what is missing or broken, shown at the top.
        more: sections to add to the page's own, such as those of analyses.
    """
    results = (study.folder / RESULTS).read_text(encoding="utf-8")
    files = {**texts, RESULTS: results}
    parts = told_apart(sections(study, comparisons, tables, more, list(files)))
    scripts = [get_plotlyjs(), f'"use strict";\n(() => {{\n{_inlined(*_SCRIPTS)}\n}})();\n']
    text = TEMPLATES.get_template("page.html").render(
        policy=Markup(_policy(scripts)),
        title=_headline(comparisons),
        findings=findings,
        facts=list(_facts(study, comparisons)),
        notes=notes,
        sections=parts,
        render=render,
        css=Markup(_inlined("page.css")),
        scripts=[Markup(script) for script in scripts],
        payload=Markup(embed(build_payload(study, comparisons, tables, files))),
    )
    write_names(path, text)


def _policy(scripts: Iterable[str]) -> str:
    """What a browser may do with the page: run these scripts, and fetch nothing.

    Plotly sets styles while it draws, so styles cannot be limited to known ones.
    """
    digests = (b64encode(sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


def _headline(comparisons: Sequence[Comparison]) -> str:
    """The title of the page."""
    groups = _listed(f"{c.model} on {c.task}" for c in comparisons)
    return f"Attention heads of {groups}"


def _facts(study: StudyData, comparisons: Sequence[Comparison]) -> Iterator[tuple[str, str]]:
    """The facts of the study: a term and its value each."""
    results = study.results
    settings = [run.settings for run in study.runs.values()]
    yield "Model", _listed(results["model"])
    yield "Task", _listed(results["task"])
    if data := _listed(of.get("data") or None for of in settings):
        yield "Data", data
    limits = _listed((of.get("training") or {}).get("limit_train") for of in settings)
    if limits:
        yield "Trained on", f"at most {limits} examples"
    yield "Evaluated on", _listed(_with_size(study, c) for c in comparisons)
    methods = list(dict.fromkeys(m for c in comparisons for m in c.methods))
    yield "Methods", _listed(methods) if len(methods) <= _NAMED else str(len(methods))
    counts = sorted({int(k) for c in comparisons for k in c.counted["k"]}, reverse=True)
    born = _listed(run.result.heads.before for run in study.runs.values())
    if counts:
        yield "Heads kept", _listed(counts) + (f" of {born}" if born else "")
    yield "Seeds", _listed(sorted(set(results["seed"])))
    yield "Runs", str(len(study.runs))


def _with_size(study: StudyData, comparison: Comparison) -> str:
    """The evaluation set, with its size if a run kept its predictions."""
    for name in comparison.rows["run"]:
        try:
            if name:
                examples = len(study.runs[name].predictions(comparison.split))
                return f"{comparison.split} ({examples:,} examples)"
        except HeadcountError:
            continue
    return comparison.split


def _listed(values: Iterable[object]) -> str:
    return ", ".join(dict.fromkeys(str(value) for value in values if value is not None))


def _inlined(*names: str) -> str:
    return "\n".join((_HERE / name).read_text(encoding="utf-8") for name in names)
