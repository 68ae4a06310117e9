"""headcount keeps exactly K attention heads of a Transformer and cuts the rest out."""

from importlib import import_module
from types import ModuleType

from headcount.errors import HeadcountError
from headcount.gates import masked
from headcount.heads.blocks import AttentionBlock, HeadMap
from headcount.heads.find import find_heads
from headcount.heads.mask import HeadMask
from headcount.loading import checkpoint
from headcount.pruners import (
    STE,
    Ablation,
    Annealing,
    Attrition,
    Countdown,
    DSPSettings,
    Fixed,
    Handover,
    HardConcrete,
    JointDSP,
    Michel,
    PipelinedDSP,
    Pruner,
    Random,
    Surgeon,
    Unpruned,
    gumbel_noise,
    hard_top_k,
    soft_top_k,
)
from headcount.study.results import load_study
from headcount.surgery import Removal, compensate, prove_removal, remove_heads
from headcount.training import (
    Distillation,
    PruningTrainer,
    Seq2SeqPruningTrainer,
    cut_with_optimizer,
)

__version__ = "0.1.0"


def __getattr__(name: str) -> ModuleType:
    """`headcount.analysis`, loaded when asked for: it needs what the extra `tasks` brings."""
    if name == "analysis":
        return import_module("headcount.analysis")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "STE",
    "Ablation",
    "Annealing",
    "AttentionBlock",
    "Attrition",
    "Countdown",
    "DSPSettings",
    "Distillation",
    "Fixed",
    "Handover",
    "HardConcrete",
    "HeadMap",
    "HeadMask",
    "HeadcountError",
    "JointDSP",
    "Michel",
    "PipelinedDSP",
    "Pruner",
    "PruningTrainer",
    "Random",
    "Removal",
    "Seq2SeqPruningTrainer",
    "Surgeon",
    "Unpruned",
    "checkpoint",
    "compensate",
    "cut_with_optimizer",
    "find_heads",
    "gumbel_noise",
    "hard_top_k",
    "load_study",
    "masked",
    "prove_removal",
    "remove_heads",
    "soft_top_k",
]
