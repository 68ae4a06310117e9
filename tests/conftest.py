"""What the tests ask of pytest and hypothesis: the same every time, no warnings of others."""

import pytest
from hypothesis import settings

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
