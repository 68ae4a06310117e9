"""The pruner's files in a checkpoint of the trainer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, load_model, save_file, save_model
from transformers import PreTrainedModel

from headcount.atomic import write_whole
from headcount.errors import HeadcountError
from headcount.heads.mask import HeadMask
from headcount.pruners.base import Pruner
from headcount.pruners.hard_concrete import HardConcrete
from headcount.training.history import SelectionHistory

WEIGHTS, STATE, HISTORY = "pruner.safetensors", "pruner.json", "selection_history.json"
TEACHER = "teacher.safetensors"  # of a model that teaches itself; beside the checkpoints
OPTIMIZER = "pruner_optimizer.pt"  # of a sharded model; else it is in the Trainer's own file


def save_pruner(pruner: Pruner, history: SelectionHistory, heads: HeadMask, folder: Path) -> None:
    """Write what the pruner has learned, and the history of its choice, into a folder.

    Args:
        pruner: any.
        history: of its choice.
        heads: that the model has; fewer than at the start if some were cut since.
        folder: of the checkpoint.
    """
    weights = {name: value.cpu().contiguous() for name, value in pruner.state_dict().items()}
    state: dict[str, Any] = {"pruner": pruner.name, "heads": heads.to_dict()}
    if isinstance(pruner, HardConcrete):
        state["penalty_weight"] = pruner.penalty_weight
    text = json.dumps(state, indent=2) + "\n"
    write_whole(folder / WEIGHTS, lambda path: save_file(weights, path))
    write_whole(folder / STATE, lambda path: path.write_text(text, encoding="utf-8"))
    history.save(folder / HISTORY)


def save_teacher(teacher: PreTrainedModel, folder: Path) -> None:
    """Write the weights of a model that was copied in the middle of its training."""
    write_whole(folder / TEACHER, lambda path: save_model(teacher, str(path)))


def load_teacher(teacher: PreTrainedModel, folder: Path) -> None:
    """Read what `save_teacher` wrote into a model of the same kind."""
    try:
        load_model(teacher, folder / TEACHER)
    except OSError as error:
        raise HeadcountError(
            f"{folder} has no {TEACHER}, so the training cannot go on as it began; give the "
            "folder of the training, or begin anew"
        ) from error


def saved_heads(folder: Path) -> HeadMask | None:
    """The heads that the model of a checkpoint has; None if it does not tell."""
    state = json.loads((folder / STATE).read_text(encoding="utf-8"))
    return HeadMask.from_dict(state["heads"]) if "heads" in state else None


def load_pruner(pruner: Pruner, folder: Path) -> None:
    """Read what `save_pruner` wrote about such a pruner."""
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
    if isinstance(pruner, HardConcrete):
        pruner.penalty_weight = state["penalty_weight"]
