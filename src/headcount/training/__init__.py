"""Fine-tuning with a pruner: transformers' Trainer with a cutter, a teacher and a history."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "cut_weights": ["cut_with_optimizer"],
        "history": ["SelectionHistory"],
        "teacher": ["Distillation"],
        "trainer": ["PruningTrainer", "Seq2SeqPruningTrainer"],
    },
)
