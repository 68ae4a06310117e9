"""Wanda (Sun, Liu, Bair and Kolter 2024): weights count as much as what goes through them.

A weight W_ij is worth |W_ij| · ‖x_j‖₂, where the norm of its input is taken over all tokens of the
data (eq. 1). The paper removes single weights. Here a head is worth the sum over its columns of the
output projection, which are the weights that nothing but this head goes through.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from headcount.batch import Batch
from headcount.pruners.choice import unit_norm
from headcount.pruners.inputs import input_sums
from headcount.pruners.scored import ScoredOnce, ScoredSettings, unit_sums
from headcount.pruners.settings import PrunerSettings


@dataclass(frozen=True)
class WandaSettings(ScoredSettings):
    """How layers are compared.

    Attributes:
        normalise: divide the scores of each block by their ℓ2 norm. Inputs grow from layer to
            layer. Without it, nearly all heads of the last layers stay.
    """

    normalise: bool = True


class Wanda(ScoredOnce):
    """Keep the K heads with the largest sum of |weight| · ‖input‖; call `fit` before `mask`.

    The paper compares the weights of one output with each other, so never between layers. Heads
    write to all outputs and are compared as wholes: normalised in all layers together or, with
    `even`, in each. The paper prunes a layer before it looks at the next. To be compared, all
    layers are looked at unpruned here. A group is worth the sum of its heads. Labels are not read.

    Args:
        keep: K; None ranks all heads down to the last.
        settings: see `WandaSettings`.
        **given: see `Pruner`.
    """

    name: ClassVar[str] = "wanda"
    withheld: ClassVar[tuple[str, ...]] = ("commit_at", "labels")  # it reads none
    settings_class: ClassVar[type[PrunerSettings]] = WandaSettings
    settings: WandaSettings

    def worth(self, model: nn.Module, batches: Iterable[Batch]) -> Tensor:
        """The sum over each unit's weights of |W_ij| · ‖x_j‖₂."""
        outputs = self.outputs(model)
        found = input_sums(model, [output for output, _ in outputs], batches)
        layers = [
            unit_sums(sums.weight().abs().sum(0) * sums.squares.sqrt(), width)
            for sums, (_, width) in zip(found, outputs, strict=True)
        ]
        return torch.cat(
            [unit_norm(layer) for layer in layers] if self.settings.normalise else layers
        )

    def signature(self) -> list[str]:
        """Whether layers are compared as they are."""
        return [*super().signature(), *([] if self.settings.normalise else ["raw"])]
