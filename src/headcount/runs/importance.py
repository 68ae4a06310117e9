"""The importance of every head, as a file that people and programs read."""

from __future__ import annotations

import json
import math
from pathlib import Path

import torch

from headcount.atomic import write_whole
from headcount.errors import HeadcountError
from headcount.heads.mask import HeadMask
from headcount.pruners import Pruner
from headcount.pruners.scored import Scored

FILE = "importance.json"
_FORMAT = "headcount importance 1"


def importances(pruner: Pruner) -> list[float]:
    """By flat index; NaN for heads that the pruner knows nothing of."""
    heads = pruner.bound()
    scores = [math.nan] * heads.born
    for place, score in zip(pruner.places, pruner.importance().tolist(), strict=True):
        scores[heads.indices[place]] = float(score)
    return scores


def rank_by(pruner: Scored, scores: list[float]) -> None:
    """Give a pruner that scores what was scored before, by flat index."""
    heads = pruner.bound()
    pruner.scores = torch.tensor(
        [scores[heads.indices[place]] for place in pruner.places], dtype=torch.float64
    )


def save_importances(
    path: Path, method: str, mask: HeadMask, scores: list[float], seconds: float | None = None
) -> None:
    """Write a JSON file with one entry per head, in the order of the forward pass.

    Args:
        path: the file.
        method: how they were found.
        mask: the heads that are kept.
        scores: by flat index; NaN for heads without one.
        seconds: how long it took, for whoever takes the ranking from here.
    """
    rows = [
        {
            "head": name,
            "importance": None if math.isnan(score) else score,
            "kept": index in mask.kept,
        }
        for index, (name, score) in enumerate(zip((mask | ~mask).names, scores, strict=True))
    ]
    text = ",\n    ".join(json.dumps(row) for row in rows)
    head = f'"format": "{_FORMAT}",\n  "method": "{method}"'
    if seconds is not None:
        head += f',\n  "seconds": {seconds:.1f}'
    whole = f'{{\n  {head},\n  "heads": [\n    {text}\n  ]\n}}\n'
    write_whole(path, lambda temporary: temporary.write_text(whole, encoding="utf-8"))


def scoring_seconds(path: Path) -> float:
    """How long it took to find the importances in a file; 0 if it does not tell."""
    return float(json.loads(path.read_text(encoding="utf-8")).get("seconds", 0.0))


def load_importances(path: Path) -> tuple[str, list[float]]:
    """The method, and the scores by flat index."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        rows = [row["importance"] for row in data["heads"]]
        return str(data["method"]), [math.nan if row is None else float(row) for row in rows]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise HeadcountError(
            f"cannot read importances from {path}: {error}; give a folder that headcount prune "
            "wrote"
        ) from error
