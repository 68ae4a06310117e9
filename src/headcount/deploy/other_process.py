"""Let a script answer in a process of its own: what it runs may end the process on an error."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from headcount.errors import HeadcountError

HANGS = 3600  # seconds


def ask(script: str, request: dict[str, Any], trouble: str) -> dict[str, Any]:
    """Run a script that reads a request from one JSON file and writes its answer to another.

    Args:
        script: the file to run.
        request: what the script reads.
        trouble: how the sentence begins that says that there is no answer.

    Raises:
        HeadcountError: the script ended without an answer.
    """
    with TemporaryDirectory() as folder:
        source, target = Path(folder, "request.json"), Path(folder, "answer.json")
        source.write_text(json.dumps(request), "utf-8")
        # -P: the modules next to the script are not for everyone to import.
        command = [sys.executable, "-P", script, str(source), str(target)]
        settings = os.environ | {"GGML_NO_BACKTRACE": "1"}  # which would start a debugger
        try:
            done = subprocess.run(
                command, env=settings, capture_output=True, text=True, timeout=HANGS, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise HeadcountError(f"{trouble}: no answer in {HANGS // 60} minutes") from error
        if done.returncode or not target.is_file():
            raise HeadcountError(f"{trouble}: {_last_words(done)}")
        answer: dict[str, Any] = json.loads(target.read_text("utf-8"))
        return answer


def _last_words(done: subprocess.CompletedProcess[str]) -> str:
    """What a process said about its end: Python's error, or else its first complaint."""
    lines = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    raised = [line for line in lines if re.match(r"[\w.]*(Error|Exception): ", line)]
    complaints = [line for line in lines if re.search("error|assert", line, re.IGNORECASE)]
    said = (raised[-1:] or complaints or lines[-1:] or ["it said nothing"])[0]
    return f"{said[:300].rstrip('.:')} (exit code {done.returncode})"
