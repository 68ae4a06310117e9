"""The files that a pruner adds to a checkpoint of the trainer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, load_model, save_file, save_model
from transformers import PreTrainedModel

from headcount.atomic import write_atomically, write_text
from headcount.errors import HeadcountError
from headcount.heads.mask import HeadMask
from headcount.pruners.base import Pruner
from headcount.training.history import SelectionHistory

WEIGHTS, STATE, HISTORY = "pruner.safetensors", "pruner.json", "selection_history.json"
TEACHER = "teacher.safetensors"  # if a model teaches itself; in the folder of the checkpoints
OPTIMIZER = "pruner_optimizer.pt"  # if the model is sharded; else it is in the Trainer's own file


def save_pruner(pruner: Pruner, history: SelectionHistory, heads: HeadMask, folder: Path) -> None:
    """Write what the pruner has learned, its history, and the heads that the model has now."""
    weights = {name: value.cpu().contiguous() for name, value in pruner.state_dict().items()}
    state: dict[str, Any] = {"pruner": pruner.name, "heads": heads.to_dict(), **pruner.state()}
    text = json.dumps(state, indent=2) + "\n"
    write_atomically(folder / WEIGHTS, lambda path: save_file(weights, path))
    write_text(folder / STATE, text)
    history.save(folder / HISTORY)


def save_teacher(teacher: PreTrainedModel, folder: Path) -> None:
    """Write the weights of a teacher that was copied in the middle of the training."""
    write_atomically(folder / TEACHER, lambda path: save_model(teacher, str(path)))


def load_teacher(teacher: PreTrainedModel, folder: Path) -> None:
    """Load what `save_teacher` wrote into a model of the same architecture."""
    try:
        load_model(teacher, folder / TEACHER)
    except OSError as error:
        raise HeadcountError(
            f"{folder} has no {TEACHER}, so the training cannot go on as it began; give the "
            "folder of the training, or start again"
        ) from error


def saved_heads(folder: Path) -> HeadMask | None:
    """The heads that the model of a checkpoint has; None if it does not say."""
    state = json.loads((folder / STATE).read_text(encoding="utf-8"))
    return HeadMask.from_dict(state["heads"]) if "heads" in state else None


def load_pruner(pruner: Pruner, folder: Path) -> None:
    """Load what `save_pruner` wrote; refuse the files of another method."""
    try:
        state = json.loads((folder / STATE).read_text(encoding="utf-8"))
        weights = load_file(folder / WEIGHTS)
    except OSError as error:
        raise HeadcountError(
            f"{folder} has no {Path(error.filename or STATE).name}, so the choice of heads "
            "cannot go on from there; give a checkpoint that a PruningTrainer wrote"
        ) from error
    if state["pruner"] != pruner.name:
        raise HeadcountError(
            f"{folder} was written with the pruner {state['pruner']}, but this one is "
            f"{pruner.name}; go on with the same pruner"
        )
    pruner.load_state_dict(weights)
    pruner.restore(state)
