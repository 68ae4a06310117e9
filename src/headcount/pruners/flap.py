"""FLAP (An, Zhao, Yu, Tang and Wang 2024): what hardly fluctuates can become a constant.

If an input of the output projection is nearly the same for all tokens, its mean can take its place,
and moves into the bias. So an input is worth its variance times the squared norm of its weights
(the metric WIFV). Scores are standardised within each layer, so that layers can be compared (the
structure AL-AM), and the bias makes up for the mean of what goes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from headcount.batch import Batch
from headcount.heads.find import find_heads
from headcount.heads.mask import HeadMask
from headcount.pruners.inputs import InputSums, input_sums
from headcount.pruners.scored import ScoredOnce, ScoredSettings, unit_sums
from headcount.pruners.settings import PrunerSettings
from headcount.surgery.new_biases import have_biases, missing_biases
from headcount.surgery.offloaded import refuse_offloaded
from headcount.surgery.outputs import outputs_of

_WHY = "flap makes up for heads with"


@dataclass(frozen=True)
class FlapSettings(ScoredSettings):
    """How fluctuation is measured, and whether the bias makes up for what goes.

    Attributes:
        squared: square the fluctuation of each input before it is standardised, as the authors'
            code does for attention. The formula of the paper does not.
        compensate: add the mean of what the heads that go gave to the bias of the output
            projection. A model without such a bias gets one, if its class has a switch for it.
    """

    squared: bool = False
    compensate: bool = True


class Flap(ScoredOnce):
    """Keep the K heads that fluctuate most; call `fit` before `mask`, and `make_up` with the mask.

    An input of the output projection is worth Var(x_j) · ‖W_j‖², less the mean of its layer's
    inputs and divided by their standard deviation. A head is worth the mean of its inputs, and so
    is a group. Both the scores and the means for the bias are of the unpruned model, as in the
    paper. Labels are not read.

    Args:
        keep: K; None ranks all heads down to the last.
        settings: see `FlapSettings`.
        **given: see `Pruner`.
    """

    name: ClassVar[str] = "flap"
    withheld: ClassVar[tuple[str, ...]] = ("commit_at", "labels")  # it reads none
    settings_class: ClassVar[type[PrunerSettings]] = FlapSettings
    settings: FlapSettings

    def worth(self, model: nn.Module, batches: Iterable[Batch]) -> Tensor:
        """The fluctuation of each unit, standardised within its layer."""
        outputs = self.outputs(model)
        found = input_sums(model, [output for output, _ in outputs], batches)
        layers = []
        for sums, (_, width) in zip(found, outputs, strict=True):
            fluctuation = _variance(sums) * sums.weight().square().sum(0)
            if self.settings.squared:
                fluctuation = fluctuation.square()
            layers.append(unit_sums(_standardised(fluctuation), width) / width)
        return torch.cat(layers)

    def signature(self) -> list[str]:
        """Whether fluctuations are squared."""
        return [*super().signature(), *(["squared"] if self.settings.squared else [])]

    def refuse(self, model: nn.Module) -> None:
        """Refuse a model that cannot have the biases that make up for heads."""
        if self.settings.compensate:
            self.bind(find_heads(model))
            missing_biases(model, [output for output, _ in self.outputs(model)], _WHY)

    def make_up(
        self,
        model: nn.Module,
        mask: HeadMask,
        batches: Iterable[Batch],
        frozen: Collection[str] = (),
    ) -> None:
        """Add the mean of what the heads outside the mask give to the biases.

        As in the paper, it is the mean in the model before the cut, and a model without biases
        gets some: its configuration then has `attention_bias`.

        Raises:
            HeadcountError: an output projection has no bias, and the model's class no switch to
                give it one. The model is then unchanged.
        """
        heads = find_heads(model)
        mask.refuse_other_model(heads)
        outputs = [output for output in outputs_of(model, heads, mask) if output.gone]
        named = missing_biases(model, outputs, _WHY)
        for block in heads.blocks if named else [output.block for output in outputs]:
            refuse_offloaded(model, block, "fitted")
        found = input_sums(model, outputs, batches, done="fitted")
        have_biases(model, named)
        for sums in found:
            name, gone = f"{sums.output.name}.bias", sums.output.gone
            fixed = name in frozen or (name in named and f"{sums.output.name}.weight" in frozen)
            if sums.count and not fixed:
                given = sums.weight()[:, gone] @ (sums.total[gone] / sums.count)
                with torch.no_grad():
                    bias = model.get_parameter(name)
                    bias.add_(given.to(bias))


def _variance(sums: InputSums) -> Tensor:
    """The variance of each input over all tokens."""
    about_mean = sums.squares - sums.total.square() / max(sums.count, 1)
    return about_mean.clamp(min=0.0) / max(sums.count - 1, 1)


def _standardised(values: Tensor) -> Tensor:
    """Values of a layer with mean 0 and standard deviation 1; all 0 if they are equal."""
    centred = values - values.mean()
    deviation = values.std()
    return centred / deviation if deviation > 1e-12 * values.abs().max() else 0.0 * centred
