"""What the page consists of: sections of pictures, tables and HTML."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup

from headcount.errors import HeadcountError

LONG = 20  # rows, beyond which a table would hide what comes after it
TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent),
    autoescape=True,  # names of methods, models and runs are anything
    trim_blocks=True,
    lstrip_blocks=True,
)


@dataclass(frozen=True)
class Grid:
    """A table of the page.

    Attributes:
        caption: above.
        columns: heads of the columns.
        rows: the first cell names the row; text is escaped, `Markup` is not.
        footnote: below, a line each.
    """

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    footnote: Sequence[str] = ()

    @property
    def folded(self) -> bool:
        """Whether it opens on demand only."""
        return len(self.rows) > LONG


@dataclass(frozen=True)
class Picture:
    """A figure that stands still.

    Attributes:
        svg: the element, as text.
        says: what it shows, for those who do not see it.
    """

    svg: str
    says: str

    @classmethod
    def read(cls, path: Path, says: str) -> Picture:
        """From a file that `figures.style.save` wrote, without what only files need.

        Raises:
            HeadcountError: the file cannot be read, or is not a whole figure.
        """
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise HeadcountError(f"{path} cannot be read: {error}; write it anew") from error
        start = text.find("<svg")
        if start < 0 or not text.rstrip().endswith("</svg>"):  # what is cut off would eat the page
            raise HeadcountError(f"{path} is damaged, it is not a whole SVG; write it anew")
        return cls(text[start:], says)


@dataclass(frozen=True)
class Section:
    """One part of the page; what is left empty is not shown.

    Attributes:
        title: its heading.
        note: a few words below the heading.
        body: HTML, for what the other parts cannot say.
        pictures: figures side by side, as many as fit.
        grids: tables, one below the other.
        number: among the sections of this title; see `told_apart`.
    """

    title: str
    note: str = ""
    body: str = ""
    pictures: Sequence[Picture] = ()
    grids: Sequence[Grid] = ()
    number: int = 1

    @property
    def anchor(self) -> str:
        """Where links lead."""
        name = "section-" + re.sub(r"\W+", "-", self.title.lower()).strip("-")
        return name if self.number == 1 else f"{name}-{self.number}"


def told_apart(sections: Iterable[Section]) -> list[Section]:
    """The same sections, numbered where their links would lead to an earlier one."""
    found: dict[str, Section] = {}
    for section in sections:
        one = section
        while one.anchor in found:
            one = replace(one, number=one.number + 1)
        found[one.anchor] = one
    return list(found.values())


def render(section: Section) -> str:
    """The section as HTML."""
    return body("section", section)


def body(name: str, *arguments: object) -> str:
    """A macro of `sections.html`, filled."""
    return Markup(getattr(TEMPLATES.get_template("sections.html").module, name)(*arguments))
