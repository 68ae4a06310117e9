"""Magnitude: the heads with the largest output weights stay, whatever goes through them.

The oldest criterion, and the only one that needs no data. What a head says reaches the model
through its columns of the output projection, so their norm is what counts here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from headcount.batch import Batch
from headcount.heads.find import find_heads
from headcount.heads.mask import HeadMask
from headcount.pruners.choice import unit_norm
from headcount.pruners.scored import Scored, ScoringData, unit_sums
from headcount.pruners.settings import PostHocSettings, PrunerSettings
from headcount.surgery.offloaded import fetched


@dataclass(frozen=True)
class MagnitudeSettings(PostHocSettings):
    """How layers are compared.

    Attributes:
        normalise: divide the scores of each block by their ℓ2 norm, because the weights of
            different layers differ in size.
    """

    normalise: bool = True


class Magnitude(Scored):
    """Keep the K heads with the largest output weights; call `fit` before `mask`.

    A head is worth the ℓ2 norm of all its output weights. A group is worth that of all weights of
    its heads together, of which each head gets an equal part.

    Args:
        keep: K; None ranks all heads down to the last.
        settings: see `MagnitudeSettings`.
        **given: see `Pruner`.
    """

    name: ClassVar[str] = "magnitude"
    settings_class: ClassVar[type[PrunerSettings]] = MagnitudeSettings
    settings: MagnitudeSettings
    asks_for: ClassVar[str] = "model"

    def fit(self, model: nn.Module, batches: Iterable[Batch] = ()) -> HeadMask:
        """Measure the weights.

        Args:
            model: the fine-tuned model; it is not changed.
            batches: not read, because weights need none.
        """
        self.bind(find_heads(model))
        norms = []
        for output, width in self.outputs(model):
            with fetched(output.projection):
                squares = output.weight().cpu().double().square().sum(0)
            found = unit_sums(squares, width).sqrt()
            norms.append(unit_norm(found) if self.settings.normalise else found)
        self.scores = self.units.divided(torch.cat(norms))
        return self.mask()

    def signature(self) -> list[str]:
        """Whether layers are compared as they are."""
        return [*super().signature(), *([] if self.settings.normalise else ["raw"])]

    def score(self, model: nn.Module, data: ScoringData) -> None:
        """Measure the weights; nothing is asked of the data."""
        self.fit(model)
