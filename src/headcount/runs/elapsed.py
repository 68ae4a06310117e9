"""How long the stages of a run took in all, also if it was stopped and resumed."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from accelerate import PartialState
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from headcount.atomic import write_whole

FILE = "elapsed.json"
STAGES = "seconds.json"  # of a training that is over, while its results are not all written


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


class Stages:
    """The stages of a run.

    Attributes:
        seconds: by the names of the stages.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def timed(self, stage: str, training: Path | None = None) -> Iterator[None]:
        """Note how long a stage takes, with what a training in it took before it was resumed."""
        started = time.perf_counter()
        yield
        earlier = 0.0 if training is None else earlier_seconds(training)
        self.seconds[stage] = time.perf_counter() - started + earlier

    def keep(self, folder: Path) -> None:
        """Keep the time of a training that is over, for the results that a kill leaves undone."""
        file = folder / STAGES
        if file.is_file():
            self.seconds = json.loads(file.read_text(encoding="utf-8"))
        else:
            text = json.dumps(self.seconds) + "\n"
            write_whole(file, lambda path: path.write_text(text, encoding="utf-8"))


def earlier_seconds(folder: Path) -> float:
    """How long the training in a folder took before it was resumed for the last time."""
    return _noted(folder / FILE).get("earlier", 0.0)


def _noted(file: Path) -> dict[str, float]:
    try:
        noted: dict[str, float] = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # of a training that another version began
        return {}
    return noted
