"""How a run reports its progress: a stage, how far it is, and a note."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Generic, Protocol, TypeVar

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

_Item = TypeVar("_Item")


class Progress(Protocol):
    """Receives the progress of a run. The command line draws bars; a library call is silent."""

    def begin(self, stage: str, total: int | None = None) -> None:
        """A stage begins; `total` is its number of steps, if that is known."""

    def advance(self, done: int, note: str = "", total: int | None = None) -> None:
        """This many steps of the stage are done; a `total` replaces the one of `begin`."""

    def say(self, line: str) -> None:
        """Show a line of text."""


class Silent:
    """Progress that shows nothing."""

    def begin(self, stage: str, total: int | None = None) -> None:
        """Nothing."""

    def advance(self, done: int, note: str = "", total: int | None = None) -> None:
        """Nothing."""

    def say(self, line: str) -> None:
        """Nothing."""


class Told(Generic[_Item]):
    """A list that reports how much of it was gone through.

    Args:
        items: the list.
        progress: receives the number of items done.
        rounds: how often the list will be gone through.
    """

    def __init__(self, items: Sequence[_Item], progress: Progress, rounds: int = 1) -> None:
        self.items, self.progress, self.total = items, progress, rounds * len(items)
        self.done = 0

    def __iter__(self) -> Iterator[_Item]:
        for item in self.items:
            yield item
            self.done += 1
            self.progress.advance(self.done, total=self.total)


class TrainerProgress(TrainerCallback):
    """Passes the progress of a `Trainer` on."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.note = ""

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Report the length of the training, and the step where a resumed one goes on."""
        self.progress.advance(state.global_step, total=state.max_steps)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Report the step."""
        self.progress.advance(state.global_step, self.note)

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Keep the last loss and temperature as the note."""
        logs = kwargs.get("logs") or {}
        if "loss" in logs:
            self.note = f"loss {float(logs['loss']):.3f}"
            if "temperature" in logs:
                self.note += f" · τ {float(logs['temperature']):.2g}"
