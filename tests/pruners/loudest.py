"""A pruner in one file, as a user would write it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from headcount.heads.find import find_heads
from headcount.heads.mask import HeadMask
from headcount.pruners.scored import Scored, ScoringData
from headcount.pruners.settings import PostHocSettings, PrunerSettings


@dataclass(frozen=True)
class LoudestSettings(PostHocSettings):
    """How loud a head is.

    Attributes:
        power: the norm of a head's output weights: 2 for the usual one, 1 to be kind to outliers.
    """

    power: float = 2.0


class Loudest(Scored):
    """Keep the heads with the largest output weights."""

    name: ClassVar[str] = "loudest"
    settings_class: ClassVar[type[PrunerSettings]] = LoudestSettings
    asks_for: ClassVar[str] = "model"
    settings: LoudestSettings

    def fit(self, model: nn.Module) -> HeadMask:
        heads = find_heads(model)
        self.bind(heads)
        norms = []
        for block in self.scope.blocks(heads):
            output = model.get_submodule(block.path).get_submodule(block.anatomy.output)
            by_head = output.weight.detach().split(block.head_size, dim=1)
            norms += [float(weight.norm(self.settings.power)) for weight in by_head]
        self.scores = torch.tensor(norms, dtype=torch.float64)
        return self.mask()

    def score(self, model: nn.Module, data: ScoringData) -> None:
        self.fit(model)
