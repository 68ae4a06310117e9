"""OSSCAR (Meng, Ibrahim, Behdin, Hazimeh, Ponomareva and Mazumder 2024): reconstruct each layer.

A layer keeps the heads S with which least squares comes closest to what its weights W give: those
that minimise ‖XW - X_S W'_S‖² over S and the weights W'. X is what goes into its output projection
when all layers before it are pruned and have their W' already. The sums XᵀX are all that has to be
known about the data. A removal in turn comes first, and then a local search swaps heads for as long
as the objective falls.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from headcount.batch import Batch
from headcount.heads.find import find_heads
from headcount.heads.mask import HeadMask
from headcount.pruners.curvature import removed_in_turn
from headcount.pruners.inputs import InputSums, input_sums, inputs_in_order
from headcount.pruners.rehearsal import Spread
from headcount.pruners.scored import ScoredOnData, ScoredSettings
from headcount.pruners.settings import PrunerSettings
from headcount.pruners.surgeon import refuse_no_ridge
from headcount.surgery.offloaded import refuse_offloaded
from headcount.surgery.outputs import outputs_of

# What heads are chosen on layer by layer, when all of it is in memory at once: this many tokens,
# and at least this many answers.
TOKENS, ANSWERS = 160_000, 512


class Layer(NamedTuple):
    """What the objective of a layer is computed from.

    Attributes:
        felt: WᵀW, where W has a row per output.
        inverse: (XᵀX)⁻¹, with the ridge.
        width: inputs of a unit.
        whole: ‖XW‖², the objective when nothing is left.
    """

    felt: Tensor
    inverse: Tensor
    width: int
    whole: float

    @property
    def number(self) -> int:
        """How many units there are."""
        return len(self.felt) // self.width

    def inputs(self, units: Sequence[int]) -> Tensor:
        """The numbers of these units' inputs."""
        own = torch.arange(self.width)
        return torch.cat([own[:0], *(unit * self.width + own for unit in units)])


@dataclass(frozen=True)
class OsscarSettings(ScoredSettings):
    """How each layer is reconstructed.

    Attributes:
        ridge: price of a change of the output weights, in units of the mean square of the values. A
            higher one keeps them closer to what they were.
        compensate: give the heads that stay the output weights of the reconstruction.
    """

    ridge: float = 1e-2  # as in the authors' code
    compensate: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_no_ridge(self.ridge)


class Osscar(ScoredOnData):
    """Keep the K heads that reconstruct their layers best; call `fit` before `mask`.

    The paper is told how many heads each layer keeps, which is the same share of every layer; that
    is `even`. Without it, K is divided first, on the inputs that unpruned layers give. Heads go in
    turn from all layers. Each time the one goes whose removal raises the objective of its layer
    least, as a share of ‖XW‖². Then each layer chooses that many as in the paper, one layer after
    another. So the choice for one K is not part of a ranking for all. A group goes as one. Labels
    are not read.

    Args:
        keep: K; None for the fewest that fit.
        settings: see `OsscarSettings`.
        **given: see `Pruner`.
    """

    name: ClassVar[str] = "osscar"
    withheld: ClassVar[tuple[str, ...]] = ("commit_at", "labels")  # it reads none
    settings_class: ClassVar[type[PrunerSettings]] = OsscarSettings
    settings: OsscarSettings

    @property
    def ranks_once(self) -> bool:
        """No: what a layer keeps depends on what is left of those before it."""
        return False

    def fit(self, model: nn.Module, batches: Iterable[Batch]) -> HeadMask:
        """Divide K over the layers, then choose in one after another; see `ScoredOnData`.

        The data is gone through once to divide K. Of more than 160,000 tokens, heads are then
        chosen on batches from all over it, with about that many.
        """
        self.bind(find_heads(model))
        seen = Spread(TOKENS, ANSWERS)
        self.scores = self.units.divided(torch.cat(self.rises(model, seen.watching(batches))))
        self.insist_on(torch.cat(self.chosen(model, seen.batches())))
        return self.mask()

    def rises(self, model: nn.Module, batches: Iterable[Batch]) -> list[Tensor]:
        """By how much of its layer's ‖XW‖² the objective rises with each unit, as they go in turn.

        A unit is never worth less than one that went before it. So the K that are worth most are
        those that are left when the cheapest of all layers goes each time.
        """
        outputs = self.outputs(model)
        found = input_sums(model, [output for output, _ in outputs], batches, products=True)
        return [
            _rises(_layer(sums, width, self.settings.ridge))
            for sums, (_, width) in zip(found, outputs, strict=True)
        ]

    def chosen(self, model: nn.Module, batches: Iterable[Batch]) -> list[Tensor]:
        """The units that each layer keeps, as many as the scores give it, on its inputs then."""
        outputs = self.outputs(model)
        kept = {
            output.name: units
            for (output, _), units in zip(outputs, self.kept_units(), strict=True)
        }
        widths = {output.name: width for output, width in outputs}

        def replace(sums: InputSums) -> Tensor:
            name, ridge = sums.output.name, self.settings.ridge
            kept[name] = best(_layer(sums, widths[name], ridge), int(kept[name].sum()))
            return reconstructed(sums, kept[name].repeat_interleave(widths[name]), ridge)

        inputs_in_order(model, [output for output, _ in outputs], batches, replace)
        return list(kept.values())

    def make_up(
        self,
        model: nn.Module,
        mask: HeadMask,
        batches: Iterable[Batch],
        frozen: Collection[str] = (),
    ) -> None:
        """Give the heads that stay the weights W' with which they reconstruct their layers.

        X is what goes into the projections with the layers before them pruned, as when the heads
        were chosen. Biases stay as they are, as do frozen weights.
        """
        heads = find_heads(model)
        mask.refuse_other_model(heads)
        outputs = [output for output in outputs_of(model, heads, mask) if output.gone]
        for output in outputs:
            refuse_offloaded(model, output.block, "fitted")
        found: dict[str, Tensor] = {}

        def replace(sums: InputSums) -> Tensor:
            output = sums.output
            stays = torch.zeros(len(sums.squares), dtype=torch.bool)
            stays[output.kept] = True
            name = f"{output.name}.weight"
            if name in frozen:
                return sums.weight() * stays
            weight = reconstructed(sums, stays, self.settings.ridge)
            if output.kept:  # of a block without heads nothing is left that could be set
                found[name] = output.by_rows(weight)
            return weight

        if outputs:
            inputs_in_order(model, outputs, batches, replace, done="fitted")
        _set(model, found)


def _set(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    with torch.no_grad():
        for name, weight in weights.items():
            model.get_parameter(name).copy_(weight)


def _layer(sums: InputSums, width: int, ridge: float) -> Layer:
    # The weights of an input that is always 0 cost nothing, not even the ridge, as in the authors'
    # code.
    weight = sums.weight() * (sums.squares > 0)
    felt = weight.T @ weight
    return Layer(
        felt,
        torch.linalg.inv(_damped(sums, ridge)),
        width,
        float((felt * sums.products).sum()),
    )


def reconstructed(sums: InputSums, stays: Tensor, ridge: float) -> Tensor:
    """W', with which the inputs that stay come closest to XW; a row per output, 0 for the others.

    Args:
        sums: XᵀX and the weights of the projection.
        stays: True for each input that stays.
        ridge: what a change of a weight costs, in units of the mean square of the values.
    """
    whole, damped = sums.weight(), _damped(sums, ridge)
    found = whole * stays
    if stays.any() and not stays.all():
        # The ridge is on the change of the weights, of which those that go lose all.
        lost = damped[stays][:, ~stays] @ whole[:, ~stays].T
        found[:, stays] += torch.linalg.solve(damped[stays][:, stays], lost).T
    return found


def _damped(sums: InputSums, ridge: float) -> Tensor:
    """XᵀX with a ridge, in units of the mean square of the values."""
    unit = max(float(sums.squares.mean()), 1e-100)  # of a projection that no token reached
    identity = torch.eye(len(sums.products), dtype=sums.products.dtype)
    return sums.products + ridge * unit * identity


def _rises(layer: Layer) -> Tensor:
    """The share of ‖XW‖² that goes with each unit; 0 in a layer that gives nothing."""
    if not layer.whole > 0:
        return torch.zeros(layer.number, dtype=torch.float64)
    return removed_in_turn(layer.felt, layer.inverse, layer.number, layer.width) / layer.whole


def best(layer: Layer, keep: int) -> Tensor:
    """The units of a layer to keep, this many of them: True for each that stays.

    The others go in turn, the one that raises the objective least each time. Then units are
    swapped.
    """
    kept = torch.zeros(layer.number, dtype=torch.bool)
    kept[_rises(layer).argsort(descending=True, stable=True)[:keep]] = True
    return locally_best(kept, layer)


def objective(layer: Layer, gone: Sequence[int]) -> float:
    """What least squares cannot reconstruct without these units: tr(W_R [(XᵀX)⁻¹_RR]⁻¹ W_Rᵀ)."""
    rows = layer.inputs(gone)
    inner = torch.linalg.inv(layer.inverse[rows][:, rows])
    return float((layer.felt[rows][:, rows] * inner).sum())


def locally_best(kept: Tensor, layer: Layer) -> Tensor:
    """The units to keep, as many as before, after swaps that lower the objective of the layer.

    The swap that lowers it most comes first, until none does. The authors' code swaps five heads at
    a time, those that seem best one by one.

    Args:
        kept: True for each unit that stays.
        layer: its objective.
    """
    kept = kept.clone()
    while kept.any() and not kept.all() and layer.whole > 0:
        stays, gone = kept.nonzero()[:, 0].tolist(), (~kept).nonzero()[:, 0].tolist()
        now = objective(layer, gone)
        found = [(value, leaves, j) for leaves in stays for j, value in _swaps(layer, gone, leaves)]
        value, leaves, returns = min(found)
        if not value < now - 1e-9 * layer.whole:
            break
        kept[leaves], kept[returns] = False, True
    return kept


def _swaps(layer: Layer, gone: Sequence[int], leaves: int) -> list[tuple[int, float]]:
    """The objective if a unit leaves and one that is gone returns, for each that may.

    With M = [(XᵀX)⁻¹_RR]⁻¹ of all that are gone for a moment, R, the return of unit j lowers the
    objective by tr(M_jj⁻¹ (M WᵀW M)_jj): one inverse serves every j.
    """
    rows = layer.inputs([*gone, leaves])
    inner = torch.linalg.inv(layer.inverse[rows][:, rows])
    felt = layer.felt[rows][:, rows]
    without, product = float((felt * inner).sum()), inner @ felt @ inner
    found = []
    for place, unit in enumerate(gone):
        own = slice(place * layer.width, (place + 1) * layer.width)
        back = torch.linalg.solve(inner[own, own], product[own, own]).trace()
        found.append((unit, without - float(back)))
    return found
