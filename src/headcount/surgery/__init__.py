"""CUT: remove the closed heads from the weights."""

from headcount.surgery.proof import prove_removal
from headcount.surgery.remove import Removal, remove_heads

__all__ = ["Removal", "prove_removal", "remove_heads"]
