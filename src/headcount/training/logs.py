"""What a training tells about its heads: in every log, and in the history of the selections."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import Trainer

from headcount.heads.mask import HeadMask
from headcount.pruners.base import Pruner
from headcount.pruners.hard_concrete import HardConcrete
from headcount.training.history import SelectionHistory
from headcount.training.saved import HISTORY


class TellingTrainer(Trainer):
    """A `Trainer` whose logs tell about the heads.

    Attributes:
        pruner: how they are chosen.
        history: which were selected at every log.
    """

    pruner: Pruner
    history: SelectionHistory

    def mask(self, keep: int | float | None = None) -> HeadMask:
        """The heads that are selected now; of several K for this one, or for the smallest."""
        return self.pruner.mask(keep)

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """Log as `Trainer` does; a training log also tells about the heads."""
        if "loss" in logs:
            logs.update(self._readings())
        super().log(logs, *args, **kwargs)

    def _readings(self) -> dict[str, float]:
        changed = self.note_selection()
        readings: dict[str, float] = {"heads_selected": len(self.mask()), "heads_changed": changed}
        if (temperature := self._temperature()) is not None:
            readings["temperature"] = temperature
        if isinstance(self.pruner, HardConcrete):
            readings["heads_expected"] = float(self.pruner.expected_count().detach())
            readings["penalty_weight"] = self.pruner.penalty_weight
        return readings

    def _temperature(self) -> float | None:
        temperature = getattr(self.pruner, "temperature", None)
        return None if temperature is None else float(temperature)

    def note_selection(self) -> int:
        """Put the selection of this step into the history; see `SelectionHistory.record`."""
        return self.history.record(self.state.global_step, self.mask(), self._temperature())

    def begin_history(self) -> None:
        """Note the first selection of a training that starts anew; one that goes on has its own."""
        if self.state.global_step == 0:
            self.history.clear()
            self.note_selection()

    def save_history(self) -> None:
        """Write `selection_history.json` into the output folder."""
        if self.args.should_save and self.args.output_dir is not None:
            self.history.save(Path(self.args.output_dir) / HISTORY)
