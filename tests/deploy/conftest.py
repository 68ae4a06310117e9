"""Every test here runs what it exports; ONNX Runtime is an extra."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        skip = pytest.mark.skip(reason=f"{error.name} of the extra `export` is not installed")
        for item in items:
            if HERE in item.path.parents:
                item.add_marker(skip)
