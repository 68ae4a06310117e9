"""What the tests of exports share. ONNX Runtime is an extra, and torch must be new enough."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from headcount.deploy.graph_folder import ONNX_PACKAGES, _refuse_old_torch
from headcount.deploy.regular import NotHeldError


def _why_not() -> str:
    """Why no graph can be exported here; empty if it can."""
    missing = [package for package in ONNX_PACKAGES if find_spec(package) is None]
    if missing:
        return f"{missing[0]} of the extra `export` is not installed"
    try:
        _refuse_old_torch()
    except NotHeldError as error:
        return str(error)
    return ""


needs_onnx = pytest.mark.skipif(bool(_why_not()), reason=_why_not())
