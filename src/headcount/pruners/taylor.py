"""Taylor (LLM-Pruner, Ma, Fang and Wang 2023): how much the loss feels all weights of a head.

To first order, the loss changes by g·w when a weight w with the gradient g becomes 0. LLM-Pruner
adds that up over all weights that can only go together. Of a head, these are its rows of the query,
key and value projections, and its columns of the output projection.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, nn

from headcount.batch import Batch, answers_per_example, batch_size
from headcount.errors import HeadcountError
from headcount.heads.blocks import AttentionBlock
from headcount.pruners.backward import Backward
from headcount.pruners.scored import ScoredOnce, ScoredSettings
from headcount.pruners.settings import PrunerSettings
from headcount.surgery.offloaded import refuse_offloaded

Form = Literal["element", "vector"]


@dataclass(frozen=True)
class TaylorSettings(ScoredSettings):
    """How the changes of a head's weights are added up.

    Attributes:
        form: element adds up the absolute change of each single weight. vector takes the head's
            part of each projection as one: changes within it may cancel.
    """

    form: Form = "element"


class Taylor(ScoredOnce):
    """Keep the K heads whose weights the loss feels most; call `fit` before `mask`.

    A head owns its query rows and its output columns. Key and value rows that several heads share
    count in equal parts for each of them. A group owns all of its weights: with `vector`, changes
    of its heads may cancel. As in LLM-Pruner, biases do not count, and the gradient is that of the
    mean loss of all data. It is added up batch by batch, in float32, so that the sums take the
    memory of the attention's weights once more.

    Args:
        keep: K; None ranks all heads down to the last.
        settings: see `TaylorSettings`.
        **given: see `Pruner`.
    """

    name: ClassVar[str] = "taylor"
    settings_class: ClassVar[type[PrunerSettings]] = TaylorSettings
    settings: TaylorSettings

    def worth(self, model: nn.Module, batches: Iterable[Batch]) -> Tensor:
        """The sum over each unit's weights of |g·w|, or over its projections of |Σ g·w|."""
        blocks = [block for block in self.units.blocks if block.num_heads]
        weights = [weight for block in blocks for weight in _weights(model, block)]
        gradients = mean_gradients(model, [weight.parameter for weight in weights], batches)
        of_heads: dict[str, list[Tensor]] = {block.name: [] for block in blocks}
        for weight, gradient in zip(weights, gradients, strict=True):
            # Not all devices have float64.
            changes = weight.parameter.detach().cpu().double() * gradient.cpu().double()
            if self.settings.form == "element":
                changes = changes.abs()
            by_row = changes.movedim(weight.dim, 0).flatten(1).sum(1)
            of_heads[weight.block.name] += list(_by_head(weight, by_row))
        worth = []
        for block, size in zip(self.units.blocks, self.units.sizes, strict=True):
            if block.num_heads:
                by_segment = torch.stack(of_heads[block.name])
                worth.append(by_segment.unflatten(1, (-1, size)).sum(2).abs().sum(0))
        return torch.cat(worth)

    def signature(self) -> list[str]:
        """Whether changes may cancel."""
        own = ["form:vector"] if self.settings.form == "vector" else []
        return [*super().signature(), *own]


class _Weight(NamedTuple):
    """A projection's weight with rows per head, along one of its dimensions."""

    block: AttentionBlock
    part: int  # its place among those of the block's anatomy
    parameter: nn.Parameter
    dim: int


def _weights(model: nn.Module, block: AttentionBlock) -> Iterator[_Weight]:
    """The weights of the block's projections; tables of biases for positions are none."""
    refuse_offloaded(model, block, "scored")
    home = model.get_submodule(block.path)
    for place, part in enumerate(block.anatomy.parts):
        module = home.get_submodule(part.path)
        for name, dim in part.tensors:
            tensor = getattr(module, name)
            if isinstance(module, nn.Embedding) or tensor is None or tensor.dim() != 2:
                continue
            if not (isinstance(tensor, nn.Parameter) and tensor.is_floating_point()):
                raise HeadcountError(
                    f"{name} of {part.path} in {block.path} is a {type(tensor).__name__} of "
                    f"{tensor.dtype}, which has no gradient; score the heads before quantising it"
                )
            yield _Weight(block, place, tensor, dim)


def _by_head(weight: _Weight, by_row: Tensor) -> Iterator[Tensor]:
    """What each head has of the rows of each projection; a tensor may hold several in a row."""
    block, anatomy = weight.block, weight.block.anatomy
    sharing = {head: len(group) for group in block.key_value_groups for head in group}
    for segment, rows_of in anatomy.rows_by_segment(anatomy.parts[weight.part], block.heads):
        own = {unit: by_row[rows.start : rows.stop].sum() for unit, rows in rows_of.items()}
        none = by_row.new_zeros(())  # some segments are of some heads only
        if segment.unit == "query":
            yield torch.stack([own.get(head, none) for head in block.heads])
        else:
            size = anatomy.group_size
            yield torch.stack([own.get(h // size, none) / sharing[h] for h in block.heads])


def mean_gradients(
    model: nn.Module, weights: Sequence[nn.Parameter], batches: Iterable[Batch]
) -> list[Tensor]:
    """The gradient of each weight of the mean loss over all answers in the batches.

    Args:
        model: gives a `loss` that is a mean over the batch; it is not changed.
        weights: parameters of the model.
        batches: what the model takes, labels included.
    """
    sums = [torch.zeros_like(weight, dtype=torch.float32) for weight in weights]
    answers = 0
    back = Backward(model, besides=sum(own.nbytes for own in sums), weights=weights)
    with back.opened():
        for batch in batches:
            given = answers_per_example(model, batch)
            number = batch_size(batch) if given is None else int(given.sum())
            for _ in back.passes(batch):
                for own, gradient in zip(sums, back.gradients, strict=True):
                    # The loss is a mean: that of a batch counts as often as it has answers.
                    own.add_(gradient.float(), alpha=number / back.scale)
            answers += number
    if not answers:
        raise HeadcountError("there is no data to score the heads on; give at least one batch")
    return [own.div_(answers) for own in sums]
