"""What the tests ask of pytest and hypothesis: the same every time, no warnings of others."""

from pathlib import Path

import pytest
from hypothesis import settings

from tests.small_task import save_encoder, save_tables

FOREIGN_WARNINGS = (
    # DeBERTa and ModernBERT decorate functions so, at import.
    "ignore:`torch.jit.script(_method)?` is deprecated:DeprecationWarning:torch.jit",
)

# The first example may build a model, which takes longer than hypothesis likes to wait.
settings.register_profile("headcount", deadline=None, derandomize=True)
settings.load_profile("headcount")


def pytest_configure(config: pytest.Config) -> None:
    for warning in FOREIGN_WARNINGS:
        config.addinivalue_line("filterwarnings", warning)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADCOUNT_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture(scope="session")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_encoder(tmp_path_factory.mktemp("encoder"))


@pytest.fixture(scope="session")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tables(tmp_path_factory.mktemp("tables"))
