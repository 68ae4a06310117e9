"""What heads do and which ones matter: the papers' analyses, for your own model and data."""

from headcount.analysis.ablation import (
    ABLATIONS,
    BatchSubject,
    TaskSubject,
    ablate_all_but_one,
    ablate_checkpoints,
    ablate_greedy,
    ablate_one,
    ablate_transfer,
)
from headcount.analysis.agreement import Agreement, agreement
from headcount.analysis.base import Analysis, load_analysis, save_analysis
from headcount.analysis.dynamics import Dynamics, dynamics
from headcount.analysis.roles import Roles, RolesOverKeep, find_roles, roles_over_keep
from headcount.analysis.speed import Bench, OverKeep, bench_models, bench_over_keep

# Every kind of analysis, by its name in files.
_ALL = (Agreement, Dynamics, Roles, RolesOverKeep, Bench, OverKeep, *ABLATIONS)
KINDS: dict[str, type[Analysis]] = {kind.kind: kind for kind in _ALL}

__all__ = [
    "KINDS",
    "Agreement",
    "Analysis",
    "BatchSubject",
    "Bench",
    "Dynamics",
    "OverKeep",
    "Roles",
    "RolesOverKeep",
    "TaskSubject",
    "ablate_all_but_one",
    "ablate_checkpoints",
    "ablate_greedy",
    "ablate_one",
    "ablate_transfer",
    "agreement",
    "bench_models",
    "bench_over_keep",
    "dynamics",
    "find_roles",
    "load_analysis",
    "roles_over_keep",
    "save_analysis",
]
