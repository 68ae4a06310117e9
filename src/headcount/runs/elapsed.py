"""How long a training took in all, also if it was stopped and resumed."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from accelerate import PartialState
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from headcount.whole import write_whole

FILE = "elapsed.json"


class Elapsed(TrainerCallback):
    """Notes with every checkpoint how long it took to get there.

    What a kill makes a training do twice is not counted twice.

    Args:
        folder: of the checkpoints.
        resumed: whether the training goes on from one of them.
    """

    def __init__(self, folder: Path, resumed: bool) -> None:
        self.file = folder / FILE
        noted = _noted(self.file) if resumed else {}
        self.earlier = noted.get("earlier", 0.0) + noted.get("since", 0.0)
        self._started = time.perf_counter()
        if PartialState().is_main_process:
            self._note(0.0)

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Write it down."""
        if state.is_world_process_zero:
            self._note(time.perf_counter() - self._started)

    def _note(self, since: float) -> None:
        text = json.dumps({"earlier": self.earlier, "since": since}) + "\n"
        write_whole(self.file, lambda path: path.write_text(text, encoding="utf-8"))


def earlier_seconds(folder: Path) -> float:
    """How long the training in a folder took before it was resumed for the last time."""
    return _noted(folder / FILE).get("earlier", 0.0)


def _noted(file: Path) -> dict[str, float]:
    try:
        noted: dict[str, float] = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # of a training that another version began
        return {}
    return noted
