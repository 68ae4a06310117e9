"""What a pruned block remembers of itself, so that its heads keep their names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from torch import nn

from headcount.heads.anatomy import Anatomy

_ATTRIBUTE = "_headcount"


@dataclass(frozen=True)
class Remains:
    """The anatomy that a block was born with, and the heads that it still has."""

    anatomy: Anatomy
    heads: tuple[int, ...]


def remains_of(home: nn.Module) -> Remains | None:
    """What is left of a block from which heads were removed; None if none ever were."""
    return cast("Remains | None", vars(home).get(_ATTRIBUTE))


def remember(home: nn.Module, remains: Remains) -> None:
    """Leave the record on the block's home module, where copies of the model take it along."""
    setattr(home, _ATTRIBUTE, remains)
