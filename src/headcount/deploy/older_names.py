"""Names that optimum knows: it runs ONNX graphs on transformers 4 and sentence-transformers 5.

Newer versions write the names of classes that they moved or renamed. They still know the old ones.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from headcount.atomic import write_text
from headcount.json_file import read_json
from headcount.loading.module_list import MODULES, has_modules, listed_modules

_TOKENIZER = "tokenizer_config.json"
_CLASSES = {"TokenizersBackend": "PreTrainedTokenizerFast"}
_MOVED = (
    "sentence_transformers.base.modules",
    "sentence_transformers.sentence_transformer.modules",
)
_HOME = "sentence_transformers.models"


def write_older_names(folder: Path) -> None:
    """Change the names of tokenizers and modules in an exported folder."""
    file = folder / _TOKENIZER
    said = read_json(file) if file.is_file() else {}
    if said.get("tokenizer_class") in _CLASSES:
        _write(file, {**said, "tokenizer_class": _CLASSES[said["tokenizer_class"]]})
    if has_modules(folder):
        rows = read_json(folder / MODULES)
        for row, listed in zip(rows, listed_modules(folder), strict=True):
            if listed.module.startswith(_MOVED):
                row["type"] = f"{_HOME}.{listed.name}"
        _write(folder / MODULES, rows)


def _write(file: Path, content: Any) -> None:
    write_text(file, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
