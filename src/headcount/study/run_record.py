"""A finished run of a study, read from its folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headcount.errors import HeadcountError
from headcount.heads.mask import MASK_FILE, HeadMask
from headcount.json_file import checked, entry, finite, read_json
from headcount.runs.output import IMPORTANCE, PREDICTIONS, load_importances
from headcount.runs.result import RunResult
from headcount.runs.unfinished import SETTINGS
from headcount.stats.significance import Predictions
from headcount.training.checkpoint_files import HISTORY
from headcount.training.history import SelectionHistory


@dataclass(frozen=True)
class Run:
    """One finished run of a study.

    Attributes:
        name: the name of its folder.
        folder: where its files are.
        settings: what `settings.json` holds.
        result: what `metrics.json` holds.
        mask: the kept heads; None if its file is missing or broken.
        history: which heads were selected when; None for methods that do not learn.
        importance: the score of every head by flat index, NaN where none is known; None without a
            readable file.
    """

    name: str
    folder: Path
    settings: dict[str, Any]
    result: RunResult
    mask: HeadMask | None
    history: SelectionHistory | None
    importance: list[float] | None = None

    @property
    def method(self) -> str:
        """The study's name for the method: that of a variant, or the method's own."""
        return str(self.settings.get("variant") or self.result.method)

    @property
    def penalty(self) -> float | None:
        """λ of a method that finds its own count; None for all others."""
        if self.settings.get("keep") is not None:
            return None
        value = (self.settings.get("settings") or {}).get("lambda")
        return None if value is None else float(value)

    def has_predictions(self, split: str) -> bool:
        """Whether the predictions of an evaluation set were kept."""
        return self._predictions(split).is_file()

    def predictions(self, split: str) -> Predictions:
        """Read the predictions of an evaluation set. They are large, so only when asked for."""
        path = self._predictions(split)
        try:
            rows = checked(read_json(path), list, "its content")
            return Predictions(
                tuple(_answer(row, "prediction") for row in rows),
                tuple(_answer(row, "reference") for row in rows),
            )
        except ValueError as error:
            raise HeadcountError(
                f"run {self.name} has no readable predictions of {split} ({error}); run it again "
                "to compare it example by example"
            ) from error

    def _predictions(self, split: str) -> Path:
        return self.folder / PREDICTIONS / f"{split}.json"


def _answer(row: Any, name: str) -> Any:
    """A label or a text, a number, or None where a task has no reference."""
    value = checked(row, dict, "a row").get(name)
    if value is None and name == "reference" and name in row:
        return None
    return value if isinstance(value, str) else entry(row, name, float)


def _read_settings(path: Path) -> dict[str, Any]:
    """What `settings.json` holds; a ValueError if what a report reads is not as it should be."""
    settings: dict[str, Any] = checked(read_json(path), dict, "its content")
    for name, kind in (("model", str), ("variant", str), ("seed", int), ("settings", dict)):
        if settings.get(name) is not None:
            checked(settings[name], kind, repr(name))
    own = settings.get("settings") or {}
    if own.get("lambda") is not None:
        finite(own, "lambda")
    return settings


def read_run(folder: Path, problems: list[str]) -> Run | None:
    """Read a run; None if it has no readable result. What is missing or broken is a problem."""
    name = folder.name
    try:
        result = RunResult.load(folder)
        settings = _read_settings(folder / SETTINGS)
    except HeadcountError as error:
        problems.append(f"run {name} is missing or broken: {error}")
        return None
    except ValueError as error:
        problems.append(f"run {name} is missing or broken: its {SETTINGS} is not readable: {error}")
        return None
    mask = history = importance = None
    try:
        mask = HeadMask.load(folder / MASK_FILE)
    except HeadcountError as error:
        problems.append(f"run {name} has no readable mask: {error}")
    if (folder / HISTORY).is_file():
        try:
            history = SelectionHistory.load(folder / HISTORY)
            last = max((head for _, heads, _ in history.selections for head in heads), default=0)
            if mask is not None and last >= mask.born:
                problems.append(
                    f"run {name} has a selection history of head {last}, but its mask is of "
                    f"{mask.born} heads; it is left out"
                )
                history = None
        except HeadcountError as error:
            problems.append(f"run {name} has no readable selection history: {error}")
    if (folder / IMPORTANCE).is_file():
        try:
            _, importance = load_importances(folder / IMPORTANCE)
            if mask is not None and len(importance) != mask.born:
                problems.append(
                    f"run {name} has importances of {len(importance)} heads, but its mask is of "
                    f"{mask.born}; they are left out"
                )
                importance = None
        except HeadcountError as error:
            problems.append(f"run {name} has no readable importances: {error}")
    return Run(name, folder, settings, result, mask, history, importance)
