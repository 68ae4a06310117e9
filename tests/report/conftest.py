from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from .synthetic import write_study


@pytest.fixture(scope="session")
def written_study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shared; read only."""
    return write_study(tmp_path_factory.mktemp("study"))


@pytest.fixture
def study_folder(written_study: Path, tmp_path: Path) -> Path:
    """A copy of one's own to break."""
    return Path(shutil.copytree(written_study, tmp_path / "study"))
