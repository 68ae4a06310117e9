"""Ablations of heads as in Michel, Levy and Neubig (2019), one file per question."""

from headcount.analysis.ablation.all_but_one import AblateAllButOne, ablate_all_but_one
from headcount.analysis.ablation.checkpoints import AblateCheckpoints, ablate_checkpoints
from headcount.analysis.ablation.greedy import AblateGreedy, ablate_greedy
from headcount.analysis.ablation.one import AblateOne, ablate_one
from headcount.analysis.ablation.subject import BatchSubject, Subject
from headcount.analysis.ablation.task_subject import TaskSubject
from headcount.analysis.ablation.transfer import AblateTransfer, ablate_transfer

ABLATIONS = (AblateOne, AblateAllButOne, AblateTransfer, AblateGreedy, AblateCheckpoints)

__all__ = [
    "ABLATIONS",
    "AblateAllButOne",
    "AblateCheckpoints",
    "AblateGreedy",
    "AblateOne",
    "AblateTransfer",
    "BatchSubject",
    "Subject",
    "TaskSubject",
    "ablate_all_but_one",
    "ablate_checkpoints",
    "ablate_greedy",
    "ablate_one",
    "ablate_transfer",
]
