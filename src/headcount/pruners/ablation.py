"""Rank heads by what is lost when each alone is masked (dashed line of Michel et al., Fig. 3).

With `unit="group"` a group is masked as one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import nn

from headcount.gates import masked
from headcount.heads.find import find_heads
from headcount.heads.mask import HeadMask
from headcount.pruners.scored import Scored, ScoringData
from headcount.pruners.settings import PostHocSettings, PrunerSettings


class Ablation(Scored):
    """Keep the K heads whose loss would cost the metric most; call `fit` before `mask`.

    Args:
        keep: K.
        settings: see `PostHocSettings`.
        **given: see `Pruner`.
    """

    name: ClassVar[str] = "ablation"
    settings_class: ClassVar[type[PrunerSettings]] = PostHocSettings
    asks_for: ClassVar[str] = "model, metric"

    def fit(self, model: nn.Module, metric: Callable[[nn.Module], float]) -> HeadMask:
        """Measure the model without each head of the scope.

        Args:
            model: the fine-tuned model; it is not changed.
            metric: a number that is higher for a better model. It is asked once for the whole
                model and once for each head or group.
        """
        heads = find_heads(model)
        self.bind(heads)
        whole, lost = metric(model), []
        for unit in range(len(self.units)):
            own = [heads.indices[self.places[head]] for head in self.units.members([unit])]
            with masked(model, HeadMask.all(heads) - HeadMask.from_indices(heads, own)):
                lost.append(whole - metric(model))
        self.scores = self.units.divided(torch.tensor(lost, dtype=torch.float64))
        return self.mask()

    def score(self, model: nn.Module, data: ScoringData) -> None:
        """Measure the model on the evaluation set to tune on."""
        self.bind(find_heads(model))
        metric = data.measuring("leaving out each head", len(self.units) + 1)
        self.fit(model, lambda _: metric())
