"""Which places of a block's values are tokens, and which are padding that does not count."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from headcount.heads.blocks import Kind

Batch = Mapping[str, Any]
IGNORED = -100  # the label of a place without one


def tokens_among(values: Tensor, model: nn.Module, batch: Batch, kind: Kind) -> Tensor:
    """The values at the places that count, one row per place.

    Args:
        values: of a block, at every place of a batch.
        model: the model.
        batch: what it was called with. A mask that does not tell about these places (an image
            beside a text, say) is not read.
        kind: of the block.
    """
    shape = values.shape[:-1]
    rows = values.flatten(0, -2)
    counts = rows.new_ones(len(rows)).bool()
    places_first = getattr(getattr(model, "config", None), "model_type", None) == "fsmt"
    for marks in _marks(model, batch, kind, shape[0] if places_first else shape[-1]):
        turned = marks.T if places_first else marks
        if turned.shape == shape:
            counts &= turned.flatten().to(rows.device)
    return rows[counts]


def _marks(model: nn.Module, batch: Batch, kind: Kind, length: int) -> list[Tensor]:
    """True where a token is, for each tensor of the batch that tells."""
    config = getattr(model, "config", None)
    if getattr(config, "is_encoder_decoder", False) and kind != "encoder":
        mask, labels = batch.get("decoder_attention_mask"), batch.get("labels")
        told = [] if labels is None else [labels != IGNORED]
    else:
        mask, told = batch.get("attention_mask"), []
        shortened = getattr(model, "_get_feature_vector_attention_mask", None)
        if mask is not None and mask.shape[-1] != length and shortened is not None:
            mask = shortened(length, mask)  # a waveform has many samples per place
    told += [] if mask is None else [mask != 0]
    return [marks for marks in told if marks.dim() == 2]
