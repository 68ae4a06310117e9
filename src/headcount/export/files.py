"""How large the files of an export are."""

from __future__ import annotations

from pathlib import Path


def data_file(file: Path) -> Path:
    """Where the weights of a large ONNX model are, which one file cannot hold."""
    return file.with_name(f"{file.name}.data")


def size_in_bytes(file: Path) -> int:
    """Of an exported graph with its weights."""
    data = data_file(file)
    return file.stat().st_size + (data.stat().st_size if data.exists() else 0)
