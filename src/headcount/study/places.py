"""The folder of a study: where things are in it, and whose it is."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from filelock import FileLock

from headcount.atomic import refuse_bad_output, sweep, write_text
from headcount.errors import HeadcountError
from headcount.pruners.settings import AFTER_THE_CHOICE
from headcount.runs.base_model import base_settings
from headcount.runs.result import FILE as RESULT
from headcount.runs.settings import ASKS, RunSettings
from headcount.runs.unfinished import (
    UNFINISHED,
    discard,
    first_change,
    refuse_other_settings,
)
from headcount.study.plan import SETTINGS, StudySettings
from headcount.study.results import FILE as RESULTS

STALE = 3600.0  # seconds after which what another process was writing is taken for dead
PARTS = ("runs", "bases", "rankings", "locks")


def open_study(study: StudySettings, folder: Path) -> Places:
    """Make the study's folder, or check that the one that exists belongs to this study."""
    settings = json.loads(json.dumps(asdict(study)))
    known = folder / SETTINGS
    refuse_bad_output(folder)
    if folder.exists() and not known.is_file():
        if not folder.is_dir():
            raise HeadcountError(f"{folder} is a file; give a folder for the study")
        # Another process may be making the study at this moment.
        others = [p for p in folder.iterdir() if p.name not in PARTS and SETTINGS not in p.name]
        if others:
            raise HeadcountError(f"{folder} exists already and is no study; give another folder")
    elif folder.exists():
        try:
            begun = json.loads(known.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise HeadcountError(
                f"{known} is damaged: {error}; restore it, or give another folder"
            ) from error
        # More methods, numbers or seeds only add runs, and speed is measured after all runs.
        may_grow = dict.fromkeys(("methods", "keep", *ASKS, "seeds", "settings", "speed"))
        changed = first_change({**begun, **may_grow}, {**settings, **may_grow})
        if changed is not None:
            key, before, after = changed
            raise HeadcountError(
                f"{folder} was begun with {key} {before}, but now it is {after}; give the same "
                "settings to go on, or another folder"
            )
        for name, run in study.runs().items():
            if Places(folder).has(name):
                refuse_other_settings(Places(folder).run(name), run.to_dict())
    try:
        for part in PARTS:
            (folder / part).mkdir(parents=True, exist_ok=True)
        for file in (known, folder / RESULTS):
            sweep(file, older_than=STALE)
        for left in folder.glob(f"*/*{UNFINISHED}"):
            if left.with_suffix("").is_dir():  # finished; a kill came just before it was removed
                discard(left)
        write_text(known, json.dumps(settings, indent=2) + "\n")
    except OSError as error:
        raise HeadcountError(f"{folder} cannot be written: {error.strerror or error}") from error
    return Places(folder)


@dataclass(frozen=True)
class Places:
    """Where in its folder a study keeps things."""

    folder: Path

    def run(self, name: str) -> Path:
        """The folder of a run."""
        return self.folder / "runs" / name

    def has(self, name: str) -> bool:
        """Whether a run is finished: its result is written last."""
        return (self.run(name) / RESULT).is_file()

    def base(self, study: StudySettings, run: RunSettings) -> Path:
        """The folder of the fine-tuned model that pipelined methods start from.

        All entries with the same seed share it, except those whose own training changes it.
        """
        wanted = base_settings(run)
        usual = base_settings(replace(run, training=study.training))
        ending = "" if wanted == usual else f"-{_digest(wanted)}"
        return self.folder / "bases" / f"seed{run.seed}{ending}"

    def ranking(self, run: RunSettings) -> Path:
        """The ranking for entries that score heads with these settings on this base model."""
        decides = _digest([_choosing(run.settings), base_settings(run)])
        return self.folder / "rankings" / f"{run.method}-seed{run.seed}-{decides}.json"

    def lock(self, name: str) -> FileLock:
        """A lock to hold while something is done; the system frees it when its process dies."""
        return FileLock(self.folder / "locks" / f"{name}.lock")


def _choosing(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a method that decide which heads are kept."""
    return {name: value for name, value in settings.items() if name not in AFTER_THE_CHOICE}


def _digest(content: object) -> str:
    """A short name for settings."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:8]
