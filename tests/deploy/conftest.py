"""Most tests here run ONNX exports; ONNX Runtime is an extra, and torch must be new enough."""

from __future__ import annotations

from pathlib import Path

import pytest

from headcount.deploy.write import _refuse_old_torch
from headcount.errors import HeadcountError

HERE = Path(__file__).parent
OTHERS = ("test_gguf.py", "test_mlx.py")  # what they need, they look for themselves


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reason = why_not()
    for item in items:
        concerned = HERE in item.path.parents and item.path.name not in OTHERS
        if reason and concerned and "old_torch" not in item.name:
            item.add_marker(pytest.mark.skip(reason=reason))


def why_not() -> str:
    """Why nothing can be exported here; empty if it can."""
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401

        _refuse_old_torch()
    except ImportError as error:
        return f"{error.name} of the extra `export` is not installed"
    except HeadcountError as error:
        return str(error)
    return ""
