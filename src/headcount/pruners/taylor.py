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

from headcount.batch import Batch, answers_per_example, batch_size, gives_vectors
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
        form: how changes are added up. `element` takes the absolute change of each single weight.
            `vector` takes the weights of a channel as one, so that their changes may cancel: a row
            of a query, key or value projection, or a column of an output projection.
    """

    form: Form = "element"


class Taylor(ScoredOnce):
    """Keep the K heads whose weights the loss feels most; call `fit` before `mask`.

    A head owns its query rows and its output columns. Key and value rows that several heads share
    count in equal parts for each of them. A group is worth the sum of its heads. As in LLM-Pruner,
    biases do not count, and the gradient is that of the mean loss of all data. It is added up batch
    by batch in float32, so that sums and gradients take twice the memory of the attention's
    weights.

    Labels that the model draws itself, and the directions of a sentence encoder, have a mean
    gradient of 0. The absolute changes of each batch are added up then.

    Args:
        keep: K; None ranks all heads down to the last.
        settings: see `TaylorSettings`.
        **given: see `Pruner`.
    """

    name: ClassVar[str] = "taylor"
    settings_class: ClassVar[type[PrunerSettings]] = TaylorSettings
    settings: TaylorSettings

    def worth(self, model: nn.Module, batches: Iterable[Batch]) -> Tensor:
        """The sum over each unit's weights of |g·w|, or over its channels of |Σ g·w|."""
        no_mean = self.settings.labels == "none" or gives_vectors(model)
        if no_mean and self.settings.form == "vector":
            raise HeadcountError(
                "form vector needs the mean gradient of labels, which is 0 for answers that the "
                "model draws itself and for sentence encoders; give form element"
            )
        blocks = [block for block in self.units.blocks if block.num_heads]
        weights = [weight for block in blocks for weight in _weights(model, block)]
        parameters = [weight.parameter for weight in weights]
        gradients = mean_gradients(model, parameters, batches, absolute=no_mean)
        of_heads: dict[str, list[Tensor]] = {block.name: [] for block in blocks}
        for weight, gradient in zip(weights, gradients, strict=True):
            # Not all devices have float64.
            changes = weight.parameter.detach().cpu().double() * gradient.cpu().double()
            if self.settings.form == "element":
                changes = changes.abs()
            by_row = changes.movedim(weight.dim, 0).flatten(1).sum(1).abs()
            of_heads[weight.block.name] += list(_by_head(weight, by_row))
        worth = []
        for block, size in zip(self.units.blocks, self.units.sizes, strict=True):
            if block.num_heads:
                by_segment = torch.stack(of_heads[block.name])
                worth.append(by_segment.unflatten(1, (-1, size)).sum((0, 2)))
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
    part = anatomy.parts[weight.part]
    sharing = {head: len(group) for group in block.key_value_groups for head in group}
    for segment, rows_of in anatomy.rows_by_segment(part, block.present(part)):
        own = {unit: by_row[rows.start : rows.stop].sum() for unit, rows in rows_of.items()}
        none = by_row.new_zeros(())  # some segments are of some heads only
        if segment.unit == "query":
            yield torch.stack([own.get(head, none) for head in block.heads])
        else:
            size = anatomy.group_size
            yield torch.stack([own.get(h // size, none) / sharing[h] for h in block.heads])


def mean_gradients(
    model: nn.Module,
    weights: Sequence[nn.Parameter],
    batches: Iterable[Batch],
    absolute: bool = False,
) -> list[Tensor]:
    """The gradient of each weight of the mean loss over all answers in the batches.

    Args:
        model: gives a `loss` that is a mean over the batch; it is not changed.
        weights: parameters of the model.
        batches: what the model takes, labels included.
        absolute: take the mean of the absolute gradients of parts of batches instead.
    """
    sums = [torch.zeros_like(weight, dtype=torch.float32) for weight in weights]
    answers = 0
    # The gradients of a pass are there at once, besides the sums.
    besides = sum(own.nbytes + weight.nbytes for own, weight in zip(sums, weights, strict=True))
    back = Backward(model, besides=besides, weights=weights)
    with back.opened():
        for batch in batches:
            labels = answers_per_example(model, batch)
            number = batch_size(batch) if labels is None else int(labels.sum())
            for _ in back.passes(batch):
                for own, gradient in zip(sums, back.gradients, strict=True):
                    # The loss is a mean: that of a batch counts as often as it has answers.
                    given = gradient.float().abs() if absolute else gradient.float()
                    own.add_(given, alpha=number / back.scale)
            answers += number
    if not answers:
        raise HeadcountError("there is no data to score the heads on; give at least one batch")
    return [own.div_(answers) for own in sums]
