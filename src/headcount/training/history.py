"""Which heads were selected at which step and temperature, and how good the model was."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from headcount.atomic import write_atomically
from headcount.errors import HeadcountError
from headcount.heads.mask import HeadMask

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
        write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))

    @classmethod
    def load(cls, path: str | Path) -> SelectionHistory:
        """Read what `save` wrote."""
        try:
            data = json.loads(Path(path).read_text(encoding="utf-8"))
            # Older files have no temperatures and no metrics.
            return cls(
                [
                    Selection(int(row["step"]), tuple(row["heads"]), row.get("temperature"))
                    for row in data["selections"]
                ],
                [(int(row["step"]), float(row["value"])) for row in data.get("metrics", ())],
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise HeadcountError(
                f"cannot read a selection history from {path}: {error}; "
                "give a file that a PruningTrainer wrote"
            ) from error
