"""How a run tells what it is doing: a stage, how far it is, and a note."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Generic, Protocol, TypeVar

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments


class Progress(Protocol):
    """Who wants to know; the command line draws bars, a library call is silent."""

    def begin(self, stage: str, total: int | None = None) -> None:
        """A stage begins, of so many steps if that is known."""

    def advance(self, done: int, note: str = "", total: int | None = None) -> None:
        """So many steps of the stage are done."""

    def say(self, line: str) -> None:
        """Something worth a line."""


class Silent:
    """Tells nobody."""

    def begin(self, stage: str, total: int | None = None) -> None:
        """Nothing."""

    def advance(self, done: int, note: str = "", total: int | None = None) -> None:
        """Nothing."""

    def say(self, line: str) -> None:
        """Nothing."""


_Item = TypeVar("_Item")


class Told(Generic[_Item]):
    """A list that tells how far one is.

    Args:
        items: the list.
        progress: who wants to know.
        rounds: how often it is gone through.
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
    """Passes on what a `Trainer` does."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.note = ""
        self.batches = 0

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Tell the length of the training, and where a resumed one goes on."""
        self.progress.advance(state.global_step, total=state.max_steps)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Tell the step."""
        self.progress.advance(state.global_step, self.note)

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Keep the last reading as the note."""
        logs = kwargs.get("logs") or {}
        if "loss" in logs:
            self.note = f"loss {float(logs['loss']):.3f}"
            if "temperature" in logs:
                self.note += f" · τ {float(logs['temperature']):.2g}"

    def on_predict(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: Any,
        **kwargs: Any,
    ) -> None:
        """An evaluation is over."""
        self.batches = 0
