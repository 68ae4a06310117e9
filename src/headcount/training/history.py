"""Which heads were selected when: the course of the choice, for `analysis` and for curiosity."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from headcount.errors import HeadcountError
from headcount.heads.mask import HeadMask

_FORMAT = "headcount selection history 1"


@dataclass
class SelectionHistory:
    """The selected heads at some steps of a training, in order.

    Attributes:
        selections: optimizer steps done, and the flat indices of the heads selected then.
    """

    selections: list[tuple[int, tuple[int, ...]]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.selections)

    def record(self, step: int, mask: HeadMask) -> int:
        """Note the selection after so many steps; a step that is there already is noted once.

        Returns:
            How many of the selected heads were not selected at the last entry.
        """
        now = mask.indices
        before = self.selections[-1][1] if self.selections else now
        if not self.selections or self.selections[-1][0] < step:
            self.selections.append((step, now))
        return len(set(now) - set(before))

    def clear(self) -> None:
        """Forget all, for a training that starts anew."""
        self.selections.clear()

    def save(self, path: str | Path) -> None:
        """Write a JSON file, whole or not at all."""
        rows = [{"step": step, "heads": list(heads)} for step, heads in self.selections]
        text = ",\n    ".join(json.dumps(row) for row in rows)
        text = f'{{\n  "format": "{_FORMAT}",\n  "selections": [\n    {text}\n  ]\n}}\n'
        write_whole(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))

    @classmethod
    def load(cls, path: str | Path) -> SelectionHistory:
        """Read what `save` wrote."""
        try:
            data = json.loads(Path(path).read_text(encoding="utf-8"))
            rows = data["selections"]
            return cls([(int(row["step"]), tuple(row["heads"])) for row in rows])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise HeadcountError(
                f"cannot read a selection history from {path}: {error}; "
                "give a file that a PruningTrainer wrote"
            ) from error


def write_whole(path: str | Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a temporary file beside `path`, then give it its name."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        write(temporary)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
