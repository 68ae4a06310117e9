"""The media that a model may take besides text, each in the shapes in which models want it."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from zoo.maker import BINS, LENGTH, SAMPLES, Inputs, Maker


def grid_variants(maker: Maker) -> Iterator[Inputs]:
    """Images cut into four by four patches, for models that accept any aspect ratio."""
    grids = ("image_grid_thw", "grid_thw", "image_grid_hw")
    name = next((name for name in grids if maker.accepts(name)), None)
    pixels = "hidden_states" if maker.accepts("hidden_states") else "pixel_values"
    if name is None or not maker.accepts(pixels):
        return
    count = 16 * maker.batch
    channels, _, height, width = maker.patch_shape
    grid = torch.tensor([[4, 4] if name == "image_grid_hw" else [1, 4, 4]] * maker.batch)
    merges = {"merge_sizes": 2 * maker.ones(maker.batch)} if maker.accepts("merge_sizes") else {}
    merges |= (
        {"image_merge_sizes": 2 * maker.ones(maker.batch)}
        if maker.accepts("image_merge_sizes")
        else {}
    )
    yield {pixels: maker.flat_patches(count), name: grid} | merges
    yield {pixels: maker.noise(count, channels, height, width), name: grid} | merges
    yield {pixels: maker.noise(1, count, channels, height, width), name: grid} | merges


def patch_variants(maker: Maker) -> Iterator[Inputs]:
    """Images as padded sequences of patches, with the positions or the shape of the grid."""
    batch = maker.batch
    places = torch.cartesian_prod(torch.arange(4), torch.arange(4)).expand(batch, -1, -1)
    shape = torch.tensor([[4, 4]] * batch)
    if maker.accepts("pixel_values", "target_sizes"):
        yield {"pixel_values": maker.images(), "target_sizes": shape}
    if maker.accepts("spatial_shapes"):
        patches = maker.flat_patches(batch, 16)
        yield {
            "pixel_values": patches,
            "pixel_attention_mask": maker.ones(batch, 16),
            "spatial_shapes": shape,
        }
    for name in ("pixel_position_ids", "image_position_ids"):
        if maker.accepts(name):
            yield {"pixel_values": maker.flat_patches(batch, 16), name: places}
    if maker.accepts("flattened_patches"):
        yield {"flattened_patches": torch.cat([places + 1, maker.flat_patches(batch, 16)], dim=-1)}


def image_variants(maker: Maker) -> Iterator[Inputs]:
    """Ways to present images, the most informative first."""
    yield from grid_variants(maker)
    yield from patch_variants(maker)
    if not maker.accepts("pixel_values"):
        return
    batch, tiles = maker.batch, maker.config_value("max_num_tiles", default=1)
    if maker.accepts("aspect_ratio_ids"):
        ratios = {
            "aspect_ratio_ids": maker.ones(batch, 1),
            "aspect_ratio_mask": maker.ones(batch, 1, tiles),
        }
        yield {"pixel_values": maker.images(1, tiles)} | ratios
    sizes = (
        {"image_sizes": torch.tensor([maker.image_size] * batch)}
        if maker.accepts("image_sizes")
        else {}
    )
    frames = maker.config_value("num_frames", default=3)
    for axes in ((), (1,), (2,), (frames,)):
        yield {"pixel_values": maker.images(*axes)} | sizes
    if sizes:
        yield {"pixel_values": maker.images()}


def video_variants(maker: Maker) -> Iterator[Inputs]:
    if maker.accepts("pixel_values_videos"):
        frames = maker.config_value("num_frames", "frames_per_clip", default=2)
        yield {"pixel_values_videos": maker.images(frames)}


def audio_variants(maker: Maker) -> Iterator[Inputs]:
    """Ways to present sounds: samples, or features with either axis order and a mask."""
    masks = [
        name for name in ("input_features_mask", "feature_attention_mask") if maker.accepts(name)
    ]
    if maker.accepts("input_values"):
        yield {"input_values": maker.noise(maker.batch, SAMPLES)}
        yield {"input_values": maker.noise(maker.batch, 1, SAMPLES)}
    known = maker.config_value(*BINS, default=80)
    positions = maker.config_value("max_source_positions", default=64)
    for name in ("input_features", "input_values"):
        if not maker.accepts(name):
            continue
        for bins in (known, 80, 128, 160, 32, 320, 560):
            for length in (2 * positions, 64, 100):
                for time_first in (False, True):
                    mask = {mask: maker.ones(maker.batch, length) for mask in masks}
                    yield {name: maker.spectrum(length, bins, time_first)} | mask
        yield {name: maker.noise(maker.batch, 1, 64, known)}


def series_variants(maker: Maker) -> Iterator[Inputs]:
    """Time series, with or without the features that accompany each step."""
    if not maker.accepts("past_values"):
        return
    batch, context = maker.batch, maker.config_value("context_length", default=32)
    if maker.accepts("past_time_features"):
        length = context + max(maker.config_value("lags_sequence", default=[0]))
        ahead = maker.config_value("prediction_length", default=4)
        features = maker.config_value("num_time_features", default=0)
        yield {
            "past_values": maker.noise(batch, length),
            "past_time_features": maker.noise(batch, length, features),
            "past_observed_mask": torch.ones(batch, length),
            "future_values": maker.noise(batch, ahead),
            "future_time_features": maker.noise(batch, ahead, features),
        }
    yield {
        "past_values": maker.noise(
            batch, context, maker.config_value("num_input_channels", default=1)
        )
    }
    extra = (
        {"past_values_padding": 0 * maker.ones(batch, context)}
        if maker.accepts("past_values_padding")
        else {}
    )
    extra |= {"freq": maker.ones(batch, 1)} if maker.accepts("freq") else {}
    yield {"past_values": maker.noise(batch, context)} | extra


def other_variants(maker: Maker) -> Iterator[Inputs]:
    """Inputs with names of their own."""
    batch = maker.batch
    width = maker.config_value("hidden_size", "d_model", default=32)
    if maker.accepts("query_embeds"):
        states = maker.noise(batch, 7, maker.config_value("encoder_hidden_size", default=width))
        yield {"query_embeds": maker.noise(batch, 5, width), "encoder_hidden_states": states}
    if maker.accepts("latents"):
        yield {"latents": maker.noise(batch, width, 8)}
        yield {"latents": maker.noise(batch, 8, width)}
    if maker.accepts("audio_mel"):
        mask = torch.zeros(batch, 64, dtype=torch.bool)
        yield {
            "audio_mel": maker.noise(batch, 64, maker.config_value(*BINS)),
            "audio_mel_mask": mask,
        }
    if maker.accepts("inputs"):
        yield {"inputs": maker.tokens(batch, LENGTH)}
        yield {"inputs": maker.noise(batch, LENGTH, maker.config_value("d_model", default=32))}
        yield {"inputs": maker.images()}
    if maker.accepts("returns_to_go"):
        states, actions = maker.config_value("state_dim"), maker.config_value("act_dim")
        yield {
            "states": maker.noise(batch, 5, states),
            "actions": maker.noise(batch, 5, actions),
            "rewards": maker.noise(batch, 5, 1),
            "returns_to_go": maker.noise(batch, 5, 1),
            "timesteps": torch.arange(5).expand(batch, -1),
            "attention_mask": maker.ones(batch, 5),
        }
