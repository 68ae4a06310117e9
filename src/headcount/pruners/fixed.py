"""Baselines that learn nothing: a random choice, and no pruning at all."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from headcount.pruners.base import Pruner


class Random(Pruner):
    """Keep K heads drawn at random, the same from the first step to the last."""

    name: ClassVar[str] = "random"

    def prepare(self, number: int) -> None:
        """Draw the ranking."""
        generator = torch.Generator().manual_seed(self.seed)
        self.ranking = torch.randperm(number, generator=generator).to(torch.float64)

    def importance(self) -> Tensor:
        """A random ranking."""
        return self.ranking


class Unpruned(Pruner):
    """Keep every head: what the others are measured against."""

    name: ClassVar[str] = "unpruned"

    def __init__(self, **scope: Any) -> None:
        super().__init__(keep=1, **scope)

    def prepare(self, number: int) -> None:
        """Keep them all."""
        self.count = number

    def importance(self) -> Tensor:
        """All alike."""
        return torch.ones(self.count, dtype=torch.float64)
