"""Load exported folders in a process that cannot import headcount, and bring back their answers."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from safetensors.torch import load_file, save_file
from torch import Tensor

# Runs elsewhere: headcount cannot be imported, and nobody's cache of modules is used.
_SCRIPT = """
import json, sys

class Nowhere:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "headcount":
            raise ImportError("headcount is not installed here")

sys.meta_path.insert(0, Nowhere())
import torch, transformers
from safetensors.torch import load_file, save_file

for job in json.load(sys.stdin):
    cls = getattr(transformers, job["auto"])
    model = cls.from_pretrained(job["folder"], dtype="auto", **job["options"]).eval()
    inputs = load_file(job["inputs"])
    with torch.no_grad():
        output = model(**inputs)
        first = next(v for v in output.values() if isinstance(v, torch.Tensor))
        answers = {"answer": first.contiguous()}
        if job["new_tokens"]:
            made = model.generate(**inputs, max_new_tokens=job["new_tokens"], do_sample=False)
            answers["generated"] = made
    save_file(answers, job["answers"])
    with open(job["answers"] + ".json", "w") as file:
        json.dump({"class": type(model).__name__}, file)
"""


class Elsewhere:
    """Collects folders, then loads them all in one process.

    Args:
        scratch: a folder for inputs and answers.
    """

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch
        self.jobs: dict[str, dict[str, object]] = {}

    def add(
        self,
        name: str,
        folder: Path,
        auto: str,
        inputs: Mapping[str, Tensor],
        new_tokens: int = 0,
        **options: object,
    ) -> None:
        """Load a folder with an auto class and run it on these inputs.

        Args:
            name: what the answers are found by.
            folder: the folder.
            auto: the name of the auto class.
            inputs: tensors by name.
            new_tokens: also generate so many tokens.
            **options: of `from_pretrained`.
        """
        file = self.scratch / f"{name}-inputs.safetensors"
        save_file({key: value.contiguous() for key, value in inputs.items()}, file)
        self.jobs[name] = {
            "folder": str(folder),
            "auto": auto,
            "inputs": str(file),
            "answers": str(self.scratch / f"{name}.safetensors"),
            "new_tokens": new_tokens,
            "options": options,
        }

    def run(self) -> dict[str, dict[str, Tensor]]:
        """What each model answered, by name; fails with what the process said."""
        cache = str(self.scratch / "hub")
        done = subprocess.run(
            [sys.executable, "-c", _SCRIPT],
            input=json.dumps(list(self.jobs.values())),
            env={
                "HF_HOME": cache,
                "HF_HUB_OFFLINE": "1",
                "OMP_NUM_THREADS": "1",
                "TRANSFORMERS_VERBOSITY": "error",
                "PATH": "",
            },
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return {name: load_file(str(job["answers"])) for name, job in self.jobs.items()}
