"""Starts real processes that train together."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def run_two_processes(script: str, folder: Path, *arguments: str) -> None:
    """Run a script in two processes, with the folder and the arguments in `sys.argv`."""
    path = folder / "run.py"
    path.write_text(script)
    root = Path(__file__).parents[2]
    sources = os.pathsep.join([str(root), str(root / "src")])
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2",
         str(path), str(folder), *arguments],
        env={**os.environ, "PYTHONPATH": sources, "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    # What a process said itself; the launcher has the last word, and it is of no use.
    said = "\n".join(line for line in done.stderr.splitlines() if line.startswith("[rank"))
    assert done.returncode == 0, said[-3000:] or done.stderr[-3000:]
