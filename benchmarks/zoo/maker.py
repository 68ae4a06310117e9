"""Makes tensors that suit one model: tokens, images, sound."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from transformers import PreTrainedConfig, PreTrainedModel

LENGTH = 10
PADDING = 2
SAMPLES = 8000
BINS = (
    "num_mel_bins",
    "feature_projection_input_dim",
    "input_feat_per_channel",
    "input_feat_size",
    "input_dim",
    "feature_size",
    "mel_bins",
)
Inputs = dict[str, Any]


def sub_configs(config: PreTrainedConfig) -> Iterator[PreTrainedConfig]:
    """The configuration and all configurations inside it, outermost first."""
    yield config
    for value in vars(config).values():
        if isinstance(value, PreTrainedConfig):
            yield from sub_configs(value)


def _pair(value: Any) -> tuple[int, int]:
    """Height and width from a configuration value that may be a single number."""
    return (value, value) if isinstance(value, int) else (int(value[-2]), int(value[-1]))


@dataclass
class Maker:
    """Makes tensors that suit one model."""

    model: PreTrainedModel
    seed: int
    batch: int
    generator: torch.Generator = field(init=False)

    def __post_init__(self) -> None:
        self.generator = torch.Generator().manual_seed(self.seed)

    @cached_property
    def accepted(self) -> dict[str, inspect.Parameter]:
        """Parameters of the forward pass by name."""
        return dict(inspect.signature(self.model.forward).parameters)

    def accepts(self, *names: str) -> bool:
        return all(name in self.accepted for name in names)

    def config_value(self, *names: str, default: Any = None) -> Any:
        """The first of these attributes that any (sub-)configuration defines."""
        for config in sub_configs(self.model.config):
            for name in names:
                value = vars(config).get(name)
                if value is not None:
                    return value
        return default

    def noise(self, *shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=self.generator)

    def ones(self, *shape: int) -> torch.Tensor:
        return torch.ones(shape, dtype=torch.long)

    # Text

    @cached_property
    def special(self) -> set[int]:
        """Token ids with a meaning, which random text must not contain."""
        found: set[int] = set()
        for config in sub_configs(self.model.config):
            for name, value in vars(config).items():
                if "token" in name or name.endswith(("_id", "_idx", "_index")):
                    items = value if isinstance(value, list) else [value]
                    found |= {item for item in items if isinstance(item, int)}
        return found

    @cached_property
    def vocabulary(self) -> int:
        sizes = (vars(config).get("vocab_size") for config in sub_configs(self.model.config))
        return min((size for size in sizes if isinstance(size, int) and size > 8), default=99)

    def tokens(self, *shape: int) -> torch.Tensor:
        """Random ordinary tokens."""
        ordinary = torch.tensor([i for i in range(self.vocabulary) if i not in self.special])
        return ordinary[torch.randint(len(ordinary), shape, generator=self.generator)]

    def text(self, placeholders: list[int] | None = None) -> Inputs:
        """Token ids: one, the placeholders, the others; the last row ends with padding."""
        front = torch.tensor(placeholders or [], dtype=torch.long).expand(self.batch, -1)
        ids = self.tokens(self.batch, LENGTH)
        ids = torch.cat([ids[:, :1], front, ids[:, 1:]], dim=1)
        eos, pad = self.config_value("eos_token_id"), self.config_value("pad_token_id", default=0)
        mask = torch.ones_like(ids)
        if self.accepts("attention_mask"):
            mask[-1, -PADDING:] = 0
        if isinstance(eos, int) and eos != pad:
            ids[torch.arange(self.batch), mask.sum(1) - 1] = eos
        ids[mask == 0] = pad
        if "MultipleChoice" in type(self.model).__name__:
            ids, mask = (tensor[:, None].repeat(1, 2, 1) for tensor in (ids, mask))
            ids[:, 1, 1] = self.tokens(self.batch)
        return {"input_ids": ids} | (
            {"attention_mask": mask} if self.accepts("attention_mask") else {}
        )

    def codes(self) -> Iterator[torch.Tensor]:
        """Tokens of several parallel codebooks, as extra rows or as an extra axis."""
        books = self.config_value("num_codebooks", "num_channels", default=1)
        yield self.tokens(self.batch * books, LENGTH)
        yield self.tokens(self.batch, LENGTH, books)
        yield self.tokens(self.batch, LENGTH, books + 1)

    def decoder_tokens(self, inputs: Inputs) -> torch.Tensor:
        """Target tokens; classifiers look up positions of the source in the target."""
        if "SequenceClassification" in type(self.model).__name__:
            return torch.as_tensor(inputs["input_ids"])
        return self.tokens(self.batch, 6)

    def media_types(self, ids: torch.Tensor) -> torch.Tensor:
        """Marks placeholder tokens: 0 is text, 1 images, 2 videos, 3 audio."""
        types = torch.zeros_like(ids)
        for number, kind in enumerate(("image", "video", "audio"), start=1):
            token = self.config_value(f"{kind}_token_id", f"{kind}_token_index")
            if token is not None:
                types[ids == token] = number
        return types

    def first_positions(self, ids: torch.Tensor, count: int) -> torch.Tensor:
        """A mask over the text that marks `count` positions after the first one."""
        mask = torch.zeros_like(ids)
        mask[:, 1 : 1 + count] = 1
        return mask

    # Images

    @cached_property
    def image_size(self) -> tuple[int, int]:
        return _pair(self.config_value("image_size", "img_size", "input_size", default=64))

    @cached_property
    def image_channels(self) -> int:
        value = self.config_value("num_channels", "in_channels", "in_chans", default=3)
        return value if isinstance(value, int) else 3

    def images(self, *frames: int) -> torch.Tensor:
        """Pictures, with extra axes between the batch and the channels."""
        return self.noise(self.batch, *frames, self.image_channels, *self.image_size)

    @cached_property
    def patch_shape(self) -> tuple[int, int, int, int]:
        """Channels, frames, height and width of one patch."""
        patch, _ = _pair(self.config_value("patch_size", default=14))
        frames = self.config_value("temporal_patch_size", "patch_temporal", default=1)
        return self.image_channels, frames, patch, patch

    def flat_patches(self, *shape: int, frames: bool = True) -> torch.Tensor:
        """Flattened patches."""
        channels, depth, height, width = self.patch_shape
        return self.noise(*shape, channels * (depth if frames else 1) * height * width)

    def half_of_tubes(self) -> torch.Tensor:
        """A mask over the patches of a video that hides every other one."""
        frames = self.config_value("num_frames", default=1) // self.config_value(
            "tubelet_size", default=1
        )
        patch, _ = _pair(self.config_value("patch_size", default=16))
        count = frames * (self.image_size[0] // patch) * (self.image_size[1] // patch)
        return (torch.arange(count) % 2 == 0).expand(self.batch, -1)

    # Sounds

    def spectrum(self, frames: int, bins: int, time_first: bool) -> torch.Tensor:
        """Audio features with the time axis first or last."""
        return self.noise(
            *((self.batch, frames, bins) if time_first else (self.batch, bins, frames))
        )
