"""Vectors of sentence-transformers' ONNX backend for a folder of exported encoders.

Run as a script with the Python that has optimum, which may have nothing else that the tests need.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path


def main(root: Path) -> None:
    os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
    import numpy as np
    from sentence_transformers import SentenceTransformer

    texts = json.loads((root / "texts.json").read_text())
    for folder in sorted(path for path in root.iterdir() if path.is_dir()):
        graphs = {"model": {}, "int8": {"file_name": "onnx/model_int8.onnx"}}
        for name, given in graphs.items():
            if name == "model" or (folder / given["file_name"]).is_file():
                encoder = SentenceTransformer(
                    str(folder), backend="onnx", device="cpu", model_kwargs=given
                )
                np.save(folder / f"{name}.npy", encoder.encode(texts))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
