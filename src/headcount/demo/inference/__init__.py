"""The demo's task: natural language inference from our own grammar, with labels by logic.

Does the premise entail the hypothesis, contradict it, or neither? `inference_pairs` writes
thousands of such pairs. `inference_split` also sets some apart for evaluation.
"""

from headcount.demo.inference.generate import Forms, Pair, inference_pairs, inference_split
from headcount.demo.inference.logic import LABELS, Label
from headcount.demo.inference.phenomena import PHENOMENA

__all__ = [
    "LABELS",
    "PHENOMENA",
    "Forms",
    "Label",
    "Pair",
    "inference_pairs",
    "inference_split",
]
