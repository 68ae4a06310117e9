"""How long the stages of a run took, also when it was stopped and went on."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from accelerate import PartialState
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from headcount.atomic import write_text
from headcount.json_file import read_json

ELAPSED = "elapsed.json"  # seconds of a training, up to its last checkpoint
STAGES = "seconds.json"  # seconds of all stages, once the training is over


class StageTimes:
    """How long the stages of a run took.

    Attributes:
        seconds: by the names of the stages.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def timed(self, stage: str, training: Path | None = None) -> Iterator[None]:
        """Note how long a stage takes.

        Args:
            stage: its name.
            training: the folder of a training in this stage. The time before that training was
                resumed is added.
        """
        started = time.perf_counter()
        yield
        earlier = 0.0 if training is None else earlier_seconds(training)
        self.seconds[stage] = time.perf_counter() - started + earlier

    def keep(self, folder: Path) -> None:
        """Keep the times in a folder, or take those that a run kept there before it was killed."""
        file = folder / STAGES
        if noted := _seconds(file):
            self.seconds = noted
        else:
            write_text(file, json.dumps(self.seconds) + "\n")


def earlier_seconds(folder: Path) -> float:
    """How long the training in a folder took before it was resumed for the last time."""
    return _seconds(folder / ELAPSED).get("earlier", 0.0)


class CheckpointTimes(TrainerCallback):
    """Notes with every checkpoint how long it took to get there.

    Steps that are done twice because of a kill are counted once.
    """

    def __init__(self, folder: Path, resumed: bool) -> None:
        self.file = folder / ELAPSED
        noted = _seconds(self.file) if resumed else {}
        self.earlier = noted.get("earlier", 0.0) + noted.get("since", 0.0)
        self._started = time.perf_counter()
        if PartialState().is_main_process:
            self._note(0.0)

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Note the time of this checkpoint."""
        if state.is_world_process_zero:
            self._note(time.perf_counter() - self._started)

    def _note(self, since: float) -> None:
        write_text(self.file, json.dumps({"earlier": self.earlier, "since": since}) + "\n")


def _seconds(file: Path) -> dict[str, float]:
    """Seconds that were noted in a file; none if it is damaged: no result depends on them."""
    seconds = noted(file)
    if all(isinstance(value, int | float) and math.isfinite(value) for value in seconds.values()):
        return seconds
    return {}


def noted(file: Path) -> dict[str, Any]:
    """What a small file holds; nothing if it is damaged or of another version."""
    try:
        content = read_json(file)
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}
