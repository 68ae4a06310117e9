"""A line on every result that says how it was made, as sacrebleu's signatures do."""

from __future__ import annotations

from headcount.pruners import Fixed, Handover, JointDSP, Pruner, Surgeon
from headcount.pruners.hard_concrete import HardConcrete
from headcount.runs.methods import annealing_of, countdown_of
from headcount.tasks.base import Task
from headcount.training.distil import Distillation


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
) -> str:
    """The signature of one score.

    Args:
        pruner: how the heads were chosen.
        heads: how many were kept, and how many there were.
        task: the data and the metric.
        split: the evaluation set.
        seed: of the run.
        examples: how many the evaluation set had.
        compensated: whether what the cut takes was given back.
        distillation: what was learned from the unpruned model.
        recovery: epochs of training after the cut, if any.
    """
    from headcount import __version__

    kept, born = heads
    parts = [f"method:{pruner.name}", f"keep:{kept}/{born}"]
    if len(pruner.counts) > 1:
        parts.append(f"trained:{'+'.join(map(str, pruner.counts))}")
    if isinstance(pruner, Fixed):
        parts.append("layout:even" if pruner.like is None else "layout:given")
    elif pruner.commit_at is not None:
        parts.append(f"commit:{pruner.commit_at:g}")
    if isinstance(pruner, JointDSP):
        parts += ["shed"] if pruner.settings.shed else []
        parts += ["hard"] if pruner.settings.hard else []
        if pruner.settings.relaxation != "gumbel":
            parts.append(f"relaxation:{pruner.settings.relaxation}")
        if pruner.settings.first != "random":
            parts.append(f"first:{pruner.settings.first}")
    if (falls := countdown_of(pruner)) is not None:
        parts.append(f"countdown:{falls.start:g}>{falls.end:g}^{falls.power:g}")
    if isinstance(pruner, Handover):
        parts.append(f"operations:{pruner.operations}")
        parts += ["anew"] if pruner.anew else []
        parts += ["fit"] if pruner.fit else []
    if isinstance(pruner, Handover | Surgeon) and pruner.halve:
        parts.append("halve")
    annealing = annealing_of(pruner)
    if annealing is not None:
        parts.append(f"tau:{annealing.start:g}>{annealing.end:g}")
    if isinstance(pruner, HardConcrete):
        parts.append("lambda:steered" if pruner.steer else f"lambda:{pruner.penalty_weight:g}")
    if distillation is not None:
        parts.append(f"distil:{distillation.weight:g}")
    if compensated:
        parts.append("compensated")
    if recovery is not None:
        parts.append(f"recovery:{recovery:g}")
    parts += [f"seed:{seed}", task.signature(split), f"n:{examples}", f"v:{__version__}"]
    return "|".join(parts)
