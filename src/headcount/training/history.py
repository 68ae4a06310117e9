"""Which heads were selected at which step and temperature, and how good the model was."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from headcount.atomic import write_text
from headcount.errors import HeadcountError
from headcount.heads.mask import HeadMask
from headcount.json_file import checked, entry, read_json

_FORMAT = "headcount selection history 1"


class Selection(NamedTuple):
    """The selected heads at one step.

    Attributes:
        step: the number of optimizer steps done.
        heads: flat indices of the selected heads.
        temperature: the temperature of the last step; None for methods without one.
    """

    step: int
    heads: tuple[int, ...]
    temperature: float | None = None


@dataclass
class SelectionHistory:
    """The selected heads at some steps of a training, in order.

    Attributes:
        selections: the selected heads at every log.
        metrics: pairs of steps done and the metric of the model with only the heads selected
            then; empty unless the run asked for it.
    """

    selections: list[Selection] = field(default_factory=list)
    metrics: list[tuple[int, float]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.selections)

    def record(self, step: int, mask: HeadMask, temperature: float | None = None) -> int:
        """Record the selection after this many steps; a step is recorded only once.

        Returns:
            How many of the selected heads were not selected in the previous entry.
        """
        now = mask.indices
        before = self.selections[-1].heads if self.selections else now
        if not self.selections or self.selections[-1].step < step:
            self.selections.append(Selection(step, now, temperature))
        return len(set(now) - set(before))

    def record_metric(self, step: int, value: float) -> None:
        """Record the metric after this many steps, with only the selected heads."""
        self.metrics.append((step, value))

    def clear(self) -> None:
        """Forget everything, for a training that starts again."""
        self.selections.clear()
        self.metrics.clear()

    def save(self, path: str | Path) -> None:
        """Write a JSON file, completely or not at all."""
        parts = {
            "selections": [selection._asdict() for selection in self.selections],
            "metrics": [{"step": step, "value": value} for step, value in self.metrics],
        }
        lists = [
            f'"{name}": [\n    ' + ",\n    ".join(map(json.dumps, rows)) + "\n  ]"
            for name, rows in parts.items()
        ]
        text = ",\n  ".join([f'"format": "{_FORMAT}"', *lists])
        text = f"{{\n  {text}\n}}\n"
        write_text(path, text)

    @classmethod
    def load(cls, path: str | Path) -> SelectionHistory:
        """Read what `save` wrote."""
        try:
            data = checked(read_json(Path(path)), dict, "its content")
            if data.get("format", _FORMAT) != _FORMAT:
                raise ValueError("it has another format")
            # Older files have no temperatures and no metrics.
            metrics = checked(data.get("metrics", []), list, "'metrics'")
            return cls(
                [_selection(row) for row in entry(data, "selections", list)],
                [(_step(row), entry(row, "value", float)) for row in metrics],
            )
        except ValueError as error:
            raise HeadcountError(
                f"cannot read a selection history from {path}: {error}; "
                "give a file that a PruningTrainer wrote"
            ) from error


def _selection(row: Any) -> Selection:
    step = _step(row)
    heads = [checked(head, int, f"a head of step {step}") for head in entry(row, "heads", list)]
    if heads and min(heads) < 0:
        raise ValueError(f"a head of step {step} is {min(heads)}, expected a whole number from 0")
    temperature = row.get("temperature")
    if temperature is not None:
        temperature = checked(temperature, float, f"the temperature of step {step}")
    return Selection(step, tuple(heads), temperature)


def _step(row: Any) -> int:
    return entry(checked(row, dict, "a row"), "step", int)  # type: ignore[no-any-return]
