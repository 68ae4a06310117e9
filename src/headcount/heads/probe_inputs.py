"""A few tokens, pixels or samples that a model can be called with, whatever its data are."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig

TOKENS = 6  # enough to attend to, few enough to be quick
FRAMES = 24  # of a spectrogram: some places after convolutions
SAMPLES = 2000  # of a waveform
PIXELS = 64  # of an image whose size the configuration does not say

Inputs = dict[str, Any]
Asked = Callable[[str], Any]  # a value of the configuration, or None
Maker = Callable[[Asked], Iterator[Tensor]]


def small_inputs(model: nn.Module) -> Iterator[Inputs]:
    """Inputs to try, the most likely first: all kinds of data at once, then each alone."""
    taken = inspect.signature(model.forward).parameters

    def asked(name: str) -> Any:
        return _value(getattr(model, "config", None), name)

    makers = {name: make for name, make in _MAKERS.items() if name in taken}
    if "decoder_input_ids" in taken and asked("is_encoder_decoder"):
        makers["decoder_input_ids"] = _tokens
    options = {name: values for name, make in makers.items() if (values := _made(make, asked))}
    more = {"use_cache": False} if "use_cache" in taken else {}
    for turn in range(max(map(len, options.values()), default=0)):
        made = {name: _beside(of[min(turn, len(of) - 1)], model) for name, of in options.items()}
        yield made | more
        if len(made) > 1:
            yield from ({name: value} | more for name, value in made.items())


def _made(make: Maker, asked: Asked) -> list[Tensor]:
    """What a maker makes; nothing where the configuration says what it does not understand."""
    try:
        return list(make(asked))
    except Exception:  # a configuration may hold anything
        return []


def _value(config: Any, name: str) -> Any:
    """A value of the configuration, or of one of the configurations inside it, outermost first."""
    found = getattr(config, name, None)
    if found is not None or not isinstance(config, PreTrainedConfig):
        return found
    inner = (_value(one, name) for one in vars(config).values() if _is_config(one))
    return next((value for value in inner if value is not None), None)


def _is_config(value: Any) -> bool:
    return isinstance(value, PreTrainedConfig)


def _beside(value: Tensor, model: nn.Module) -> Tensor:
    """On the model's device, and in its type where it is not a number of a token."""
    weight = next((p for p in model.parameters() if p.is_floating_point()), value)
    return value.to(weight.device, weight.dtype if value.is_floating_point() else value.dtype)


def _tokens(asked: Asked) -> Iterator[Tensor]:
    size = asked("vocab_size")
    if isinstance(size, int) and size > 1:
        # Neither padding nor other special tokens, which are the first as a rule.
        yield (torch.arange(TOKENS)[None] * 7 + size // 2) % size


def _pixels(asked: Asked) -> Iterator[Tensor]:
    size, channels = asked("image_size") or PIXELS, asked("num_channels") or 3
    if not isinstance(channels, int):
        return
    height, width = size if isinstance(size, list | tuple) else (size, size)
    frames = asked("num_frames") or asked("frames_per_clip")
    if isinstance(frames, int):
        yield _wave(1, frames, channels, height, width)
    yield _wave(1, channels, height, width)


def _spectrogram(asked: Asked) -> Iterator[Tensor]:
    bins = asked("num_mel_bins") or asked("feature_size") or asked("input_feat_per_channel")
    places = asked("max_source_positions")
    if not isinstance(bins, int):
        return
    if isinstance(places, int) and asked("num_mel_bins"):
        yield _wave(1, bins, 2 * places)
    yield _wave(1, FRAMES, bins)
    yield _wave(1, bins, FRAMES)


def _samples(asked: Asked) -> Iterator[Tensor]:
    bins, length = asked("num_mel_bins"), asked("max_length")
    if isinstance(bins, int) and isinstance(length, int):
        yield _wave(1, length, bins)  # a spectrogram all the same
    yield _wave(1, SAMPLES)
    yield _wave(1, 1, SAMPLES)


_MAKERS: dict[str, Maker] = {
    "input_ids": _tokens,
    "pixel_values": _pixels,
    "input_features": _spectrogram,
    "input_values": _samples,
}


def _wave(*shape: int) -> Tensor:
    """Numbers that differ from place to place, and are always the same."""
    count = torch.Size(shape).numel()
    return torch.sin(torch.arange(count, dtype=torch.float32) * 0.37).view(shape)
