"""CHOOSE: one file per method, one small interface."""

from headcount.pruners.ablation import Ablation
from headcount.pruners.attrition import Attrition
from headcount.pruners.base import Pruner
from headcount.pruners.dsp import DSPSettings, JointDSP, PipelinedDSP
from headcount.pruners.fixed import Fixed, Random, Unpruned
from headcount.pruners.handover import Handover
from headcount.pruners.hard_concrete import HardConcrete
from headcount.pruners.michel import Michel
from headcount.pruners.schedule import Annealing, Countdown
from headcount.pruners.ste import STE
from headcount.pruners.surgeon import Surgeon
from headcount.pruners.top_k import gumbel_noise, hard_top_k, soft_top_k

__all__ = [
    "STE",
    "Ablation",
    "Annealing",
    "Attrition",
    "Countdown",
    "DSPSettings",
    "Fixed",
    "Handover",
    "HardConcrete",
    "JointDSP",
    "Michel",
    "PipelinedDSP",
    "Pruner",
    "Random",
    "Surgeon",
    "Unpruned",
    "gumbel_noise",
    "hard_top_k",
    "soft_top_k",
]
