"""What is released: one version everywhere, and files that have all that they need."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import zipfile
from email import message_from_bytes
from email.message import Message
from pathlib import Path

import pytest
import yaml

import headcount

ROOT = Path(__file__).parents[1]
PACKAGE = Path(headcount.__file__).parent


def test_one_version_is_said_everywhere() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    newest = re.search(r"^## (\S+) - (\S+)$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.M)
    assert newest is not None
    assert newest.groups() == (headcount.__version__, str(cited["date-released"]))
    assert cited["version"] == headcount.__version__


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the source distribution, and the wheel that is built from it."""
    pytest.importorskip("hatch_fancy_pypi_readme", reason="the extra `dev` is not installed")
    folder = tmp_path_factory.mktemp("built")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> dict[str, bytes]:
    (path,) = built.glob("*.whl")
    with zipfile.ZipFile(path) as file:
        return {name: file.read(name) for name in file.namelist()}


@pytest.fixture(scope="module")
def metadata(wheel: dict[str, bytes]) -> Message:
    return message_from_bytes(wheel[f"headcount-{headcount.__version__}.dist-info/METADATA"])


@pytest.mark.slow
def test_the_wheel_has_every_file_of_the_package(wheel: dict[str, bytes]) -> None:
    ours = {
        path.relative_to(PACKAGE.parent).as_posix(): path.read_bytes()
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    endings = {Path(name).suffix for name in ours}
    assert endings == {".py", ".pyi", ".typed", ".txt", ".html", ".css", ".js"}
    assert {name: text for name, text in wheel.items() if ".dist-info/" not in name} == ours
    (entry,) = (text for name, text in wheel.items() if name.endswith("entry_points.txt"))
    assert b"headcount = headcount.cli:main" in entry
    assert any(name.endswith("licenses/LICENSE") for name in wheel)


@pytest.mark.slow
def test_the_description_leads_nowhere_that_a_package_index_has_not(metadata: Message) -> None:
    text = metadata.get_payload()
    assert isinstance(text, str)
    assert text.startswith("# headcount\n") and "## Read on" in text
    links = re.findall(r"\]\(([^)]*)\)", text)
    assert len(links) > 3
    assert not [link for link in links if not link.startswith("https://")]
    assert "(`docs/do/deploy.md`)" in text


@pytest.mark.slow
def test_the_source_distribution_has_what_a_builder_needs(built: Path) -> None:
    (path,) = built.glob("*.tar.gz")
    assert path.stat().st_size < 3e6
    with tarfile.open(path) as file:
        names = {Path(name).parts[1] for name in file.getnames()}
    assert {"src", "tests", "docs", "benchmarks", "Makefile", "LICENSE", "CITATION.cff"} <= names
    assert not names & {"evidence", ".ci", ".git", ".venv", "build", "dist"}
