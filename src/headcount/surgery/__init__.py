"""CUT: remove the closed heads from the weights, and give back part of what they gave."""

from headcount.surgery.compensate import compensate
from headcount.surgery.proof import prove_removal
from headcount.surgery.remove import Removal, remove_heads

__all__ = ["Removal", "compensate", "prove_removal", "remove_heads"]
