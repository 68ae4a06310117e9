"""Fine-tuning with a pruner inside."""

from headcount.training.distil import Distillation
from headcount.training.history import SelectionHistory
from headcount.training.shrink import cut_with_optimizer
from headcount.training.trainer import PruningTrainer, Seq2SeqPruningTrainer

__all__ = [
    "Distillation",
    "PruningTrainer",
    "SelectionHistory",
    "Seq2SeqPruningTrainer",
    "cut_with_optimizer",
]
