"""What a run measured, as its `metrics.json` keeps it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from headcount.atomic import write_whole
from headcount.errors import HeadcountError
from headcount.runs.methods import COMPENSATE
from headcount.stats.numbers import shown

FILE = "metrics.json"
RECOVERY = "recovery"  # the stage after the cut
_FORMAT = "headcount run 1"


@dataclass(frozen=True)
class Sides:
    """A number of the unpruned model and of the pruned one.

    Attributes:
        before: of the unpruned model.
        after: of the pruned model.
    """

    before: float
    after: float

    @property
    def ratio(self) -> float:
        """After in units of before."""
        return self.after / self.before


@dataclass(frozen=True)
class RunResult:
    """The figures of one run.

    Attributes:
        method: how the heads were chosen.
        metric: the metric that decides.
        greater_is_better: of that metric.
        scores: of the pruned model, by evaluation set and metric.
        before: of the unpruned model where one was evaluated, likewise.
        signatures: by evaluation set.
        heads: kept, of how many.
        parameters: of both models.
        bytes: of both models' weights.
        examples_per_second: of both, in evaluation, measured side by side; None if not measured.
        generated_per_second: sentences, for tasks that generate.
        difference: the largest between the outputs of the masked model and of the cut one.
        seconds: spent on each stage.
        shared_by: how many results came from this one training; `seconds` has all of it.
    """

    method: str
    metric: str
    greater_is_better: bool
    scores: dict[str, dict[str, float]]
    before: dict[str, dict[str, float]] | None
    signatures: dict[str, str]
    heads: Sides
    parameters: Sides
    bytes: Sides
    examples_per_second: Sides | None
    generated_per_second: Sides | None
    difference: float
    seconds: dict[str, float]
    shared_by: int = 1

    @property
    def cost(self) -> float:
        """Seconds, of which results that share a training have equal parts."""
        # Done for each number of heads alone.
        own = sum(self.seconds.get(stage, 0.0) for stage in (COMPENSATE, RECOVERY))
        return own + (sum(self.seconds.values()) - own) / self.shared_by

    def rows(self) -> list[tuple[str, str, str, str]]:
        """The table for a person: what, before, after, ratio."""
        rows = []
        for split, scores in self.scores.items():
            before = None if self.before is None else self.before[split][self.metric]
            after = scores[self.metric]
            rows.append(
                (
                    f"{self.metric}, {split}",
                    "–" if before is None else shown(self.metric, before),
                    shown(self.metric, after),
                    f"× {after / before:.2f}" if before else "",
                )
            )
        kinds: Sequence[tuple[str, Sides | None, str, float]] = (
            ("heads", self.heads, "{:,.0f}", 1),
            ("parameters", self.parameters, "{:,.0f}", 1),
            ("weights on disk, MB", self.bytes, "{:.1f}", 1e6),
            ("examples per second", self.examples_per_second, "{:.1f}", 1),
            ("generated per second", self.generated_per_second, "{:.1f}", 1),
        )
        for what, sides, form, unit in kinds:
            if sides is not None:
                before_text, after_text = (
                    form.format(sides.before / unit),
                    form.format(sides.after / unit),
                )
                rows.append((what, before_text, after_text, f"× {sides.ratio:.2f}"))
        return rows

    def save(self, folder: Path) -> None:
        """Write `metrics.json`."""
        text = json.dumps({"format": _FORMAT, **asdict(self)}, indent=2) + "\n"
        write_whole(folder / FILE, lambda path: path.write_text(text, encoding="utf-8"))

    @classmethod
    def load(cls, folder: Path) -> RunResult:
        """Read `metrics.json` of a finished run."""
        try:
            data: dict[str, Any] = json.loads((folder / FILE).read_text(encoding="utf-8"))
            if data.pop("format") != _FORMAT:
                raise ValueError("it has another format")
            pairs = ("heads", "parameters", "bytes", "examples_per_second", "generated_per_second")
            for name in pairs:
                data[name] = None if data[name] is None else Sides(**data[name])
            return cls(**data)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise HeadcountError(
                f"{folder} has no readable {FILE}: {error}; give the output of headcount prune"
            ) from error
