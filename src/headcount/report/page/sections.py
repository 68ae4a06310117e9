"""The sections of the page: what a section consists of, and which ones there are.

A section has pictures, tables and HTML. `sections` lists those of a study in order, and `render`
makes HTML of one, with the macros of `sections.html`.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup

from headcount.analysis.settling import settled
from headcount.errors import HeadcountError
from headcount.report.curves import gains
from headcount.report.table_text import (
    OWN_COLUMNS,
    cell_text,
    grid,
    label,
    legend,
    own_cells,
    unpruned_text,
)
from headcount.report.tables import Cell, Table
from headcount.study.read import Comparison, StudyData

TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent),
    autoescape=True,  # names of methods, models and runs can be anything
    trim_blocks=True,
    lstrip_blocks=True,
)
_LONG = 20  # rows; a longer table is folded, so that it does not hide what comes after it
_BESIDE = 3  # tables of results; of more, those without a finding are folded
_SEEN = 6  # pictures; the others are folded
_FOLDED = 8  # runs; with more of them, there is a filter


@dataclass(frozen=True)
class Section:
    """One part of the page; what is left empty is not shown.

    Attributes:
        title: the heading.
        note: a few words below the heading.
        body: HTML, for anything that pictures and tables cannot show.
        pictures: figures, side by side if they fit.
        grids: tables, one below the other.
        number: counts the sections of this title, see `told_apart`.
    """

    title: str
    note: str = ""
    body: str = ""
    pictures: Sequence[Picture] = ()
    grids: Sequence[Grid] = ()
    number: int = 1

    @property
    def seen(self) -> Sequence[Picture]:
        """The pictures that are shown at once."""
        return self.pictures[:_SEEN]

    @property
    def unseen(self) -> Sequence[Picture]:
        """The other pictures, which are shown when asked for."""
        return self.pictures[_SEEN:]

    @property
    def anchor(self) -> str:
        """The id of the section, for links."""
        name = "section-" + re.sub(r"\W+", "-", self.title.lower()).strip("-")
        return name if self.number == 1 else f"{name}-{self.number}"


@dataclass(frozen=True)
class Picture:
    """A figure that is not interactive.

    It is shown as an image: a browser neither runs nor fetches what an image's file asks for, and
    the file may come from a study of somebody else.

    Attributes:
        svg: the SVG element, as text.
        says: what it shows, for readers who cannot see it.
    """

    svg: str
    says: str

    @property
    def address(self) -> str:
        """The picture itself, as the address of an image."""
        return f"data:image/svg+xml;base64,{b64encode(self.svg.encode()).decode()}"

    @classmethod
    def read(cls, path: Path, says: str) -> Picture:
        """Read a file that `plots.style.save` wrote, without what only files need.

        Raises:
            HeadcountError: the file cannot be read, or is not a whole figure.
        """
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise HeadcountError(f"{path} cannot be read: {error}; write it again") from error
        start = text.find("<svg")
        if start < 0 or not text.rstrip().endswith("</svg>"):
            raise HeadcountError(f"{path} is damaged, it is not a whole SVG; write it again")
        return cls(text[start:], says)


@dataclass(frozen=True)
class Grid:
    """A table of the page.

    Attributes:
        caption: text above the table.
        columns: headings of the columns.
        rows: cells of each row; the first names it. Text is escaped, `Markup` is not.
        footnote: lines below the table.
        fold: whether it opens only when asked; None if that depends on its length.
    """

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    footnote: Sequence[str] = ()
    fold: bool | None = None

    @property
    def folded(self) -> bool:
        """Whether it opens only when asked."""
        return len(self.rows) > _LONG if self.fold is None else self.fold


def sections(
    study: StudyData,
    comparisons: Sequence[Comparison],
    tables: Sequence[Table],
    more: Sequence[Section],
    files: Sequence[str],
) -> Iterator[Section]:
    """All sections for which there is something to show.

    Args:
        study: the study with its runs.
        comparisons: the results of the study, one per model, task and evaluation set; first those
            that the page leads with.
        tables: one table per comparison.
        more: further sections, shown before the runs' settings.
        files: names of the files that can be downloaded.
    """
    runs = list(study.runs.values())
    groups = list(dict.fromkeys((c.model, c.task) for c in comparisons))
    leaders = len(groups)
    grids = [
        one
        for place, table in enumerate(tables)
        for one in _table_grids(table, place >= leaders and len(tables) > _BESIDE)
    ]
    yield Section("Results", grids=grids)
    yield Section(
        "Metric by kept heads",
        "Mean over seeds, bars are one standard deviation; the dashed line is the unpruned model. "
        "A name hides or shows its method. The tables above have the same numbers.",
        _body("curves"),
    )
    if any(run.mask is not None for run in runs):
        yield Section(
            "Map of heads",
            "A square is a head, a row a layer. The bluer, the more important to the method; "
            "kept heads have a frame and a dot.",
            _body("head_map"),
        )
    if any(settled(run) is not None for run in runs):
        yield Section(
            "When the choice settles",
            "How many of the heads that a run keeps in the end are selected at each step. Thin "
            "lines are runs, thick ones the mean of a method.",
            _body("dynamics"),
        )
    grids = list(_gain_grids(study, comparisons[:leaders]))
    if grids:
        yield Section(
            "Speed and size",
            "Against the unpruned model, measured side by side on the same machine.",
            _body("gains"),
            grids=grids,
        )
    if any(c.own_count["penalty"].notna().any() for c in comparisons):
        yield Section(
            "Heads by price",
            "How many heads are left when each costs λ. The tables above have the same numbers.",
            _body("penalty"),
        )
    yield from more
    yield Section("Runs", body=_body("runs", runs, len(runs) > _FOLDED))
    yield Section("Downloads", body=_body("downloads", files))


def _table_grids(table: Table, fold: bool) -> Iterator[Grid]:
    """A table of the methods that keep a given number of heads, and one of the others."""
    title = f"{table.title}: {label(table)}"
    unpruned = [] if table.unpruned is None else [unpruned_text(table)]
    if table.rows:
        columns, rows = grid(table, _cell)
        yield Grid(title, columns, rows, [*unpruned, legend(table)], fold)
    if table.own_count:
        yield Grid(
            f"{title}, methods that found their own number of heads",
            [*OWN_COLUMNS, label(table), "seeds"],
            [own_cells(table, row) for row in table.own_count],
            [] if table.rows else unpruned,
            fold,
        )


def _cell(metric: str, cell: Cell | None) -> str:
    if cell is None:
        return "–"
    text = cell_text(metric, cell)
    if cell.best:
        return Markup("<strong>{}</strong>").format(text)
    return text + ("†" if cell.worse else "")


def _gain_grids(study: StudyData, comparisons: Sequence[Comparison]) -> Iterator[Grid]:
    """One table per model and task: means over all runs with the same number of heads."""
    for comparison in comparisons:
        found = gains(study, comparison)
        if found.empty:
            continue
        groups = found.groupby("heads")[["speed", "shrinkage"]].agg(["mean", "count"])
        rows = [
            [
                f"{heads:.0f}",
                f"{row['speed', 'mean']:+.1f}" if row["speed", "count"] else "not measured",
                f"{row['shrinkage', 'mean']:.1f}",
                f"{row['shrinkage', 'count']:.0f}",
            ]
            for heads, row in groups.sort_index(ascending=False).iterrows()
        ]
        yield Grid(
            f"{comparison.model}, {comparison.task}: mean over runs",
            ("heads", "speed-up, %", "fewer parameters, %", "runs"),
            rows,
        )


def told_apart(sections: Iterable[Section]) -> list[Section]:
    """The sections, numbered if they have the same title, so that every link is unique."""
    found: dict[str, Section] = {}
    for section in sections:
        one = section
        while one.anchor in found:
            one = replace(one, number=one.number + 1)
        found[one.anchor] = one
    return list(found.values())


def render(section: Section) -> str:
    """The section as HTML."""
    return _body("section", section)


def _body(name: str, *arguments: object) -> str:
    """The HTML that a macro of `sections.html` makes of the arguments."""
    return Markup(getattr(TEMPLATES.get_template("sections.html").module, name)(*arguments))
