"""Random inputs with padding, to trace a model with and to check its export on."""

from __future__ import annotations

import torch
from torch import Tensor
from transformers import PreTrainedModel

from headcount.deploy.regular import NotHeldError


def tokens(model: PreTrainedModel, batch: int, length: int) -> Tensor:
    """Random tokens; the padding token is not among them."""
    text = model.config.get_text_config()
    ids = torch.randint(0, text.vocab_size, (batch, length), generator=_generator(length))
    pad = _pad(model)
    return torch.where(ids == pad, (pad + 1) % text.vocab_size, ids)


def padded(model: PreTrainedModel, ids: Tensor, mask: Tensor) -> Tensor:
    """The tokens, with the padding token where their mask is zero.

    Args:
        model: the model that knows the padding token.
        ids: the tokens.
        mask: their mask; it may begin with the mask of a past.
    """
    return ids.masked_fill(mask[:, -ids.shape[1] :] == 0, _pad(model))


def mask(batch: int, length: int, left: bool) -> Tensor:
    """A mask in which every second example is a third shorter.

    Args:
        batch: how many examples.
        length: how many tokens, padding included.
        left: whether the padding is on the left, as decoders need it.
    """
    made = torch.ones(batch, length, dtype=torch.long)
    gone = length // 3
    if gone:
        made[1::2, :gone] = 0
    return made if left else made.flip(1)


def image(model: PreTrainedModel, batch: int) -> Tensor:
    """Random images of the size that the model takes."""
    size = getattr(model.config, "image_size", None)
    if size is None:
        raise NotHeldError("its config.json has no image_size: how large its images are")
    height, width = size if isinstance(size, list | tuple) else (size, size)
    return torch.randn(batch, model.config.num_channels, height, width, generator=_generator(batch))


def cache(shape: tuple[int, ...], place: int) -> Tensor:
    """Random keys or values of a shape; `place` is the seed."""
    return torch.randn(shape, generator=_generator(place))


def _pad(model: PreTrainedModel) -> int:
    return getattr(model.config.get_text_config(), "pad_token_id", None) or 0


def _generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)
