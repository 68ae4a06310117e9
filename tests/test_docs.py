"""The pages: their links lead somewhere, and they say what the code says."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import headcount
from headcount.pruners.methods import METHODS, find_pruner, recipe_keys

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
WIDTH = 120
LINK = re.compile(r"\]\((?P<target>[^)#:\s]*)(?:#(?P<anchor>[^)\s]+))?\)")
# Of the site alone: mkdocs makes it of the command line.
MADE = {DOCS / "look-up" / "commands.md"}
EVIDENCE = ROOT / "evidence"


@pytest.fixture(scope="module")
def tables() -> ModuleType:
    spec = importlib.util.spec_from_file_location("settings_tables", DOCS / "settings_tables.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


def prose(page: Path) -> str:
    """The text of a page without its code."""
    return re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """What a link may name in a page: its headings, as mkdocs and GitHub write them."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    letters = (re.sub(r"[^\w\s-]", "", heading.lower()).strip() for heading in headings)
    return {re.sub(r"\s", "-", heading) for heading in letters}


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_tables_of_settings_are_up_to_date(tables: ModuleType, page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert tables.renewed(text) == text, "run: make docs"


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=named)
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in LINK.finditer(prose(page)):
        target = (page.parent / link["target"]).resolve() if link["target"] else page
        if EVIDENCE in (target, *target.parents) and not EVIDENCE.exists():
            continue  # the source distribution has none
        assert target.exists() or target in MADE, link[0]
        if link["anchor"] and target not in MADE:
            assert link["anchor"] in anchors(target), link[0]


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=named)
def test_lines_fit(page: Path) -> None:
    lines = page.read_text(encoding="utf-8").splitlines()
    assert not [line for line in lines if len(line) > WIDTH and line[:1] not in ("|", "!")]


def test_every_public_name_has_its_place_among_the_python_pages() -> None:
    pages = "\n".join(page.read_text("utf-8") for page in (DOCS / "look-up" / "api").glob("*.md"))
    shown = set(re.findall(r"^::: headcount\.(\S+)$", pages, re.MULTILINE))
    public = {name for name in headcount.__all__ if not name.startswith("_")}
    assert public - shown <= {"checkpoint"}


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="the extra `docs` is not installed")
    command = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    fetched = re.compile(r"""(?:src|<link[^>]*href)=["']?https?://""")
    for page in (tmp_path / "site").rglob("*.html"):
        assert not fetched.search(page.read_text(encoding="utf-8")), page


@pytest.mark.parametrize("method", METHODS)
def test_every_setting_has_a_meaning(method: str) -> None:
    for key in recipe_keys(find_pruner(method)).values():
        assert key.meaning, key.name
        assert key.default, key.name
