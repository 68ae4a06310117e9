"""Natural language inference from a grammar of our own: the demo's task, with labels by logic.

Does the premise entail the hypothesis, contradict it, or neither? `inference_pairs` writes such
pairs by the thousand, `inference_split` sets some apart for evaluation.
"""

from headcount.demo.inference.generate import Forms, inference_pairs, inference_split
from headcount.demo.inference.logic import LABELS, Label, Pair
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
