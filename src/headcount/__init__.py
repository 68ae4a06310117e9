"""headcount keeps exactly K attention heads of a Transformer and cuts the rest out."""

from headcount import checkpoint
from headcount.errors import HeadcountError
from headcount.gates import masked
from headcount.heads.blocks import AttentionBlock, HeadMap
from headcount.heads.find import find_heads
from headcount.heads.mask import HeadMask
from headcount.surgery import Removal, prove_removal, remove_heads

__version__ = "0.1.0"

__all__ = [
    "AttentionBlock",
    "HeadMap",
    "HeadMask",
    "HeadcountError",
    "Removal",
    "checkpoint",
    "find_heads",
    "masked",
    "prove_removal",
    "remove_heads",
]
