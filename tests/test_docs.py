"""The pages: what they say about settings is what the dataclasses say."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from headcount.pruners.methods import METHODS, find_pruner, recipe_keys

DOCS = Path(__file__).parent.parent / "docs"


@pytest.fixture(scope="module")
def tables() -> ModuleType:
    spec = importlib.util.spec_from_file_location("settings_tables", DOCS / "settings_tables.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: page.stem)
def test_tables_of_settings_are_up_to_date(tables: ModuleType, page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert tables.renewed(text) == text, "run: make docs"


@pytest.mark.parametrize("method", METHODS)
def test_every_setting_has_a_meaning(method: str) -> None:
    for key in recipe_keys(find_pruner(method)).values():
        assert key.meaning, key.name
        assert key.default, key.name
