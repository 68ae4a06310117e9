"""Fisher (Kwon, Kim, Mahoney, Hassoun, Keutzer and Gholami 2022): search, rearrange, tune.

"A Fast Post-Training Pruning Framework for Transformers" has three steps. The search ranks heads by
the diagonal of the Fisher information of their gates, which says how much the loss rises without
each. The rearrangement looks at pairs of heads in a layer too. The tuning gives the gates of those
that stay values other than 1, so that each layer gives what it gave before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from headcount.batch import Batch
from headcount.errors import HeadcountError
from headcount.heads.find import find_heads
from headcount.heads.mask import HeadMask
from headcount.pruners.gate_gradients import gate_gradients
from headcount.pruners.scored import ScoredOnData, ScoredSettings
from headcount.pruners.settings import PrunerSettings
from headcount.surgery.compensate import fit_in_order
from headcount.surgery.least_squares import LeastSquares
from headcount.surgery.outputs import Output
from headcount.surgery.paused import Changed

# The authors' damping, which holds the gates near 1, and the range in which a layer's gates are
# believed. Here, as in the text of the paper, it is the damping of min ‖Am - b‖². Their code gives
# LSMR the normal equations with it, which damps less where A is large. A constant is fitted there
# with the gates and then dropped, the teacher has more heads than the model, by a schedule, and the
# first layer's heads stay as they are. Here there is no constant, the teacher is the unpruned
# model, and all layers are tuned.
DAMPING, LARGEST_GATE = 1.0, 10.0


@dataclass(frozen=True)
class FisherSettings(ScoredSettings):
    """How the heads that stay make up for those that go.

    Attributes:
        compensate: make up for the heads that go, as the paper does.
        tune: make up for the heads that go by one factor per head that stays, which multiplies its
            output weights. False fits all output weights, as `compensate` does for other methods.
    """

    compensate: bool = True
    tune: bool = True


class Fisher(ScoredOnData):
    """Keep K heads by the Fisher information of their gates; call `fit` before `mask`.

    The paper searches within a number of operations. Here the K heads with the most information
    stay. Then heads of one layer are swapped while that lowers what the layer loses. So the choice
    for one K is not part of a ranking for all. The gates of a group are one gate.

    Args:
        keep: K; None for the fewest that fit.
        settings: see `FisherSettings`.
        **given: see `Pruner`.
    """

    name: ClassVar[str] = "fisher"
    settings_class: ClassVar[type[PrunerSettings]] = FisherSettings
    settings: FisherSettings

    @property
    def ranks_once(self) -> bool:
        """No: which heads are swapped depends on how many stay."""
        return False

    def fit(self, model: nn.Module, batches: Iterable[Batch]) -> HeadMask:
        """Search by the diagonal of the Fisher information, then rearrange; see `ScoredOnData`."""
        self.bind(find_heads(model))
        layers = self.measured(model, batches)
        self.scores = self.units.divided(torch.cat([layer.diagonal() for layer in layers]))
        self.insist_on(torch.cat(list(map(rearranged, self.kept_units(), layers))))
        return self.mask()

    def measured(self, model: nn.Module, batches: Iterable[Batch]) -> list[Tensor]:
        """The Fisher information of each layer's gates."""
        found = fisher_information(model, batches)
        sizes = zip(self.units.blocks, self.units.sizes, strict=True)
        return [_of_units(found[block.name], size) for block, size in sizes if block.num_heads]

    def make_up(
        self,
        model: nn.Module,
        mask: HeadMask,
        batches: Iterable[Batch],
        frozen: Collection[str] = (),
    ) -> None:
        """Tune the gates of the heads that stay, and multiply their output weights by them.

        Layers are tuned in the order of the forward pass. If the gates of one are beyond the
        paper's range, it and all after it stay as they are. As in the paper, the sums of a
        projection's output and its residual are compared with those of the whole model. Where no
        such sum is seen in the model, as in layers whose attention and MLP are parallel, the
        outputs of the projection are compared alone.
        """
        if self.settings.tune:
            heads = find_heads(model)
            units = self.scope.units(heads)
            sizes = dict(zip((b.name for b in units.blocks), units.sizes, strict=True))

            def tuned(output: Output, sums: LeastSquares) -> Changed | None:
                block = output.block
                return _tuned(output, sums, block.head_size * sizes.get(block.name, 1))

            fit_in_order(model, mask, batches, tuned, frozen, residual=True)
        else:
            super().make_up(model, mask, batches, frozen)

    def signature(self) -> list[str]:
        """Whether gates are tuned."""
        tuned = self.settings.compensate and self.settings.tune
        return [*super().signature(), *(["tuned"] if tuned else [])]


def fisher_information(model: nn.Module, batches: Iterable[Batch]) -> dict[str, Tensor]:
    """The Fisher information of the gates of each block: the mean over examples of g gᵀ.

    The text of the paper has a mean over examples, its code takes the gradients of whole batches.
    Here it is the text, so that the size of the batches does not matter.
    """
    heads = find_heads(model)
    found = {
        block.name: torch.zeros(block.num_heads, block.num_heads, dtype=torch.float64)
        for block in heads.blocks
    }
    examples = 0
    for batch in gate_gradients(model, heads, HeadMask.all(heads), batches):
        for matrix, rows in zip(found.values(), batch.rows, strict=True):
            matrix.addmm_(rows.T, rows)
        examples += batch.examples
    if not examples:
        raise HeadcountError("there is no data to score the heads on; give at least one batch")
    return {name: matrix / examples for name, matrix in found.items()}


def _of_units(matrix: Tensor, size: int) -> Tensor:
    """The information of the gates of groups of this many heads, each of which is one gate."""
    by_row: Tensor = matrix.unflatten(0, (-1, size)).sum(1)
    by_both: Tensor = by_row.unflatten(1, (-1, size)).sum(2)
    return by_both


def rearranged(kept: Tensor, fisher: Tensor) -> Tensor:
    """The units of a layer to keep, as many as before, after swaps that lower (1-m)ᵀ I (1-m).

    The swap that lowers it most comes first, until none does. The authors' code goes through the
    heads once, which may end earlier.

    Args:
        kept: True for each unit that stays.
        fisher: I, the information of the layer's gates.
    """
    kept, diagonal = kept.clone(), fisher.diagonal()
    while kept.any() and not kept.all():
        felt = fisher @ (~kept).double()
        leaves, returns = kept.nonzero()[:, 0], (~kept).nonzero()[:, 0]
        change = (
            (2 * felt + diagonal)[leaves][:, None]
            - (2 * felt - diagonal)[returns][None, :]
            - 2 * fisher[leaves][:, returns]
        )
        best = int(change.argmin())
        if not float(change.flatten()[best]) < -1e-12 * float(diagonal.sum()):
            break
        kept[leaves[best // len(returns)]] = False
        kept[returns[best % len(returns)]] = True
    return kept


def _tuned(output: Output, sums: LeastSquares, size: int) -> Changed | None:
    """The output weights of the units that stay, each of this many inputs, times its gate."""
    if not output.kept:
        return {}
    weight = output.weight()[:, output.kept].cpu().double()
    # Of what the heads say after the projection: products of every two, and with what is missing.
    products = _of_units(sums.squares * (weight.T @ weight), size)
    wanted = (sums.products * weight.T).sum(1).unflatten(0, (-1, size)).sum(1)
    identity = torch.eye(len(products), dtype=products.dtype)
    change = torch.linalg.solve(products + DAMPING**2 * identity, wanted)
    if not float((1 + change).abs().max()) <= LARGEST_GATE:
        return None
    return output.with_weight(weight * change.repeat_interleave(size))
