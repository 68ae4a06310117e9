"""Fine-tuning with a pruner inside."""

from headcount.training.history import SelectionHistory
from headcount.training.trainer import PruningTrainer, Seq2SeqPruningTrainer

__all__ = ["PruningTrainer", "SelectionHistory", "Seq2SeqPruningTrainer"]
