"""CUT: remove the closed heads from the weights."""

from headcount.surgery.remove import Removal, remove_heads

__all__ = ["Removal", "remove_heads"]
