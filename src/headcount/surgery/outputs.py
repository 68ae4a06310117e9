"""The output projections of a model, what passes through them, and which of it is padding."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from headcount.batch import IGNORED, Batch
from headcount.errors import HeadcountError
from headcount.heads.blocks import AttentionBlock, HeadMap, Kind
from headcount.heads.mask import HeadMask
from headcount.surgery.offloaded import fetched


@dataclass(frozen=True)
class Output:
    """The output projection of a block.

    Attributes:
        block: the block it belongs to.
        projection: the module itself.
        name: the module's name in the model.
        kept: indices of the inputs that come from heads that stay.
        gone: indices of the other inputs.
    """

    block: AttentionBlock
    projection: nn.Linear | Conv1D
    name: str
    kept: list[int]
    gone: list[int]

    @property
    def has_bias(self) -> bool:
        """Whether it adds something that is the same at every position."""
        return self.projection.bias is not None

    @property
    def names(self) -> set[str]:
        """The names of its parameters in the model."""
        return {f"{self.name}.weight", *([f"{self.name}.bias"] if self.has_bias else [])}

    def weight(self) -> Tensor:
        """The weight with a row per output, however the module stores it."""
        return self.by_rows(self.projection.weight.detach())

    def by_rows(self, weight: Tensor) -> Tensor:
        """Turn a weight of this module into a row per output, or back."""
        return weight.T if isinstance(self.projection, Conv1D) else weight

    def with_weight(self, change: Tensor) -> dict[str, Tensor]:
        """The weight after a change for the heads that stay, by its name in the model."""
        weight = self.weight().clone()
        weight[:, self.kept] += change.to(weight)
        return {f"{self.name}.weight": self.by_rows(weight).contiguous()}

    def with_bias(self, change: Tensor) -> dict[str, Tensor]:
        """The bias after a change, by its name in the model."""
        bias = self.projection.bias.detach()
        return {f"{self.name}.bias": bias + change.to(bias)}


def outputs_of(model: nn.Module, heads: HeadMap, mask: HeadMask) -> list[Output]:
    """The output projections of all blocks that have heads.

    Raises:
        HeadcountError: one is not a plain projection.
    """
    kept = mask.by_block()
    return [_output(model, block, kept[block.name]) for block in heads.blocks if block.num_heads]


def _output(model: nn.Module, block: AttentionBlock, kept: Sequence[int]) -> Output:
    anatomy = block.anatomy
    name = f"{block.path}.{anatomy.output}".removeprefix(".")
    projection = cast("nn.Linear | Conv1D", model.get_submodule(name))
    if not _is_plain(projection):
        raise HeadcountError(
            f"the output projection {name} is a {type(projection).__name__} of "
            f"{projection.weight.dtype}, expected a plain Linear; compensate before wrapping or "
            "quantising it"
        )
    part = next(part for part in anatomy.parts if part.path == anatomy.output)
    inputs, now = anatomy.rows_to_keep(part, block.heads, kept)
    return Output(block, projection, name, inputs, sorted(set(range(now)) - set(inputs)))


def _is_plain(projection: nn.Module) -> bool:
    """Whether it computes what its weight and bias say; a subclass (Falcon's) may."""
    if type(projection) is Conv1D:
        return bool(projection.weight.is_floating_point())
    if not isinstance(projection, nn.Linear) or not projection.weight.is_floating_point():
        return False
    if type(projection) is nn.Linear:
        return True
    with fetched(projection):
        weight, bias = projection.weight.detach(), projection.bias
        probe = torch.linspace(-1.0, 1.0, weight.shape[1]).to(weight)[None]
        expected = nn.functional.linear(probe, weight, bias)
    with torch.no_grad():
        return torch.allclose(projection.forward(probe), expected, rtol=1e-2, atol=1e-5)


Hear = Callable[[Output, Tensor, Tensor], Tensor | None]


@contextmanager
def listening(outputs: Sequence[Output], hear: Hear) -> Iterator[None]:
    """Report every call of these projections: its input, with gates applied, and its output.

    Unless `hear` returns None, its result replaces the output.
    """
    with ExitStack() as hooks:
        for output in outputs:
            hook = partial(_tell, hear, output)
            hooks.enter_context(output.projection.register_forward_hook(hook))
        yield


def _tell(
    hear: Hear, output: Output, module: nn.Module, args: Any, answer: Tensor
) -> Tensor | None:
    return hear(output, args[0], answer)


def tokens_among(values: Tensor, model: nn.Module, batch: Batch, kind: Kind) -> Tensor:
    """The values of a block at the positions that are not padding, one row per position.

    A mask in the batch that is not about these positions is not read. An example is the mask of a
    text, when the block sees an image.
    """
    shape = values.shape[:-1]
    rows = values.flatten(0, -2)
    counts = rows.new_ones(len(rows)).bool()
    places_first = getattr(getattr(model, "config", None), "model_type", None) == "fsmt"
    for marks in token_marks(model, batch, kind, shape[0] if places_first else shape[-1]):
        for turned in (marks.T, marks) if places_first else (marks,):  # its logits are not
            if turned.shape == shape:
                counts &= turned.flatten().to(rows.device)
                break
    return rows[counts]


def token_marks(model: nn.Module, batch: Batch, kind: Kind, length: int) -> list[Tensor]:
    """True where there is a token, for each tensor of the batch that says so.

    Args:
        model: says how many positions it makes of a waveform.
        batch: what the model takes.
        kind: of the block whose positions they are.
        length: how many positions an example has.
    """
    config = getattr(model, "config", None)
    if getattr(config, "is_encoder_decoder", False) and kind != "encoder":
        mask, labels = batch.get("decoder_attention_mask"), batch.get("labels")
        told = [] if labels is None else [labels != IGNORED]
    else:
        mask, told = batch.get("attention_mask"), []
        shortened = getattr(model, "_get_feature_vector_attention_mask", None)
        if mask is not None and mask.shape[-1] != length and shortened is not None:
            mask = shortened(length, mask)  # a waveform has many samples per position
    told += [] if mask is None else [mask != 0]
    return [marks for marks in told if marks.dim() == 2]


def not_finite(output: Output, done: str) -> HeadcountError:
    """The error for values that are too large for the model's type; `done` cannot be done then."""
    return HeadcountError(
        f"values or gradients at {output.name} are not finite in {output.projection.weight.dtype}, "
        f"so heads cannot be {done}; load the model in bfloat16 or float32"
    )
