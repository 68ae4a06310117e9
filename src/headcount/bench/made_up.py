"""Inputs for a model whose data are not at hand: random texts or images of a given size."""

from __future__ import annotations

import torch
from transformers import PreTrainedModel

from headcount.batch import Batch
from headcount.errors import HeadcountError

_IMAGES = "pixel_values"


def random_batch(model: PreTrainedModel, batch: int, length: int) -> Batch:
    """A batch of random texts without padding, or of random images.

    Args:
        model: a model that takes token ids or pixels.
        batch: number of examples.
        length: tokens of each text. A decoder reads as many as its encoder.

    Raises:
        HeadcountError: the model takes other inputs, or no texts of this length.
    """
    generator = torch.Generator().manual_seed(0)
    if takes_images(model) and hasattr(model.config, "image_size"):
        return {_IMAGES: torch.randn(batch, *_image_shape(model), generator=generator)}
    if model.main_input_name != "input_ids" or hasattr(model.config, "vision_config"):
        raise HeadcountError(
            f"{type(model).__name__} takes {model.main_input_name}, for which no input can be made "
            "up here; give its data as --task and --data, or a model of texts or of images"
        )
    config = model.config.get_text_config()
    longest = getattr(config, "max_position_embeddings", None)
    if longest is not None and length > longest:
        raise HeadcountError(
            f"the length is {length}, but {type(model).__name__} has places for {longest} tokens; "
            "give a smaller --length"
        )
    # The lowest numbers are special tokens, where some models stop or pad.
    first = min(1000, config.vocab_size // 5)
    ids = torch.randint(first, config.vocab_size, (batch, length), generator=generator)
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    return {**inputs, "decoder_input_ids": ids} if model.config.is_encoder_decoder else inputs


def takes_images(model: PreTrainedModel) -> bool:
    """Whether the inputs of the model are images, which have no length."""
    return model.main_input_name == _IMAGES


def _image_shape(model: PreTrainedModel) -> tuple[int, int, int]:
    size = model.config.image_size
    height, width = size if isinstance(size, list | tuple) else (size, size)
    return model.config.num_channels, height, width
