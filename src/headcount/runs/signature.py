"""The signature of a score: a line that says how it came about, to quote beside it."""

from __future__ import annotations

from headcount.pruners.base import Pruner
from headcount.tasks.base import Task
from headcount.training.teacher import Distillation


def signature(
    pruner: Pruner,
    heads: tuple[int, int],
    task: Task,
    split: str,
    seed: int,
    examples: int,
    compensated: bool = False,
    distillation: Distillation | None = None,
    recovery: float | None = None,
    asks: str | None = None,
) -> str:
    """The signature of one score: a line that says how it came about.

    Args:
        pruner: the pruner that chose the heads.
        heads: how many were kept, and how many there were.
        task: gives the data and the metric.
        split: the evaluation set.
        seed: the seed of the run.
        examples: how many examples the evaluation set has.
        compensated: whether output weights were fitted to make up for the cut heads.
        distillation: how the model learned from the unpruned one; None if it did not.
        recovery: epochs of training after the cut; None for none.
        asks: what was asked for instead of a number of heads, as `cache=0.5`; None for nothing.
    """
    from headcount import __version__

    kept, born = heads
    parts = [f"method:{pruner.name}", f"keep:{kept}/{born}", *pruner.signature()]
    if asks is not None:
        parts.append(f"asked:{asks}")
    if distillation is not None:
        parts.append(f"distil:{distillation.weight:g}")
    if compensated:
        parts.append("compensated")
    if recovery is not None:
        parts.append(f"recovery:{recovery:g}")
    parts += [f"seed:{seed}", task.signature(split), f"n:{examples}", f"v:{__version__}"]
    return "|".join(parts)
