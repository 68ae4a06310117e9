"""Tiny inputs for the forward pass of any `transformers` model.

What a model accepts is read from the signature of its forward pass and from its configuration.
Where these leave several possibilities open (is the time axis first or last? does an image come
with a frame axis?), the candidates are tried in turn and the first one that runs is returned.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from transformers import PreTrainedModel

from zoo.maker import Inputs, Maker
from zoo.media import (
    audio_variants,
    image_variants,
    other_variants,
    series_variants,
    video_variants,
)


def _rows(features: Any, width: int) -> int:
    """How many embeddings of the text model some media features amount to."""
    for name in ("pooler_output", "last_hidden_state"):
        found = getattr(features, name, None)
        if found is not None:
            return _rows(found, width)
    if isinstance(features, torch.Tensor):
        return features.numel() // width
    return sum(_rows(item, width) for item in features)


def _placeholders(maker: Maker, media: Inputs) -> list[int] | None:
    """The placeholder tokens that media inputs need in every row of the text."""
    supply = _completed(maker, media)
    kinds = {
        "pixel_values": "image",
        "input_features": "audio",
        "input_values": "audio",
        "pixel_values_videos": "video",
    }
    for name, kind in kinds.items():
        token = maker.config_value(f"{kind}_token_id", f"{kind}_token_index")
        if name in media and token is not None:
            return [token] * _feature_count(maker, supply, f"get_{kind}_features")
    return None


def _feature_count(maker: Maker, supply: Inputs, method_name: str) -> int:
    """How many embeddings per row the model makes of its media; one if it cannot be asked.

    The innermost module with the method is asked: the outer ones merely forward the call.
    """
    methods = [
        getattr(module, method_name)
        for module in maker.model.modules()
        if hasattr(module, method_name)
    ]
    if not methods:
        return 1
    known = inspect.signature(methods[-1]).parameters
    with torch.no_grad():
        found = methods[-1](**{k: v for k, v in supply.items() if k in known})
    width = maker.model.get_input_embeddings().get_parameter("weight").shape[1]
    return _rows(found, width) // maker.batch


def _with_text(maker: Maker, media: Inputs) -> Inputs:
    return maker.text(_placeholders(maker, media)) | media


def _companions(maker: Maker, inputs: Inputs) -> dict[str, Callable[[], Any]]:
    """Further inputs to add where they are accepted, given the main ones."""
    batch = maker.batch
    ids = inputs.get("input_ids")
    made: dict[str, Callable[[], Any]] = {
        "decoder_input_ids": lambda: maker.decoder_tokens(inputs),
        "qformer_input_ids": lambda: maker.tokens(batch, 5),
        "task_inputs": lambda: maker.tokens(batch, maker.config_value("task_seq_len", default=8)),
    }
    if maker.accepts("decoder_input_values"):
        speakers = maker.config_value("speaker_embedding_dim")
        made |= {
            "decoder_input_values": lambda: maker.noise(
                batch, 6, maker.config_value("num_mel_bins")
            ),
            "speaker_embeddings": lambda: maker.noise(batch, speakers),
        }
    masked = maker.accepted.get("bool_masked_pos")
    if masked is not None and masked.default is inspect.Parameter.empty:
        made["bool_masked_pos"] = maker.half_of_tubes
    if maker.accepts("prompt_pixel_values"):
        made |= dict.fromkeys(("prompt_pixel_values", "prompt_masks"), maker.images)
    if ids is not None:
        made |= {
            "bbox": lambda: torch.tensor([1, 2, 10, 20]).expand(*ids.shape, 4),
            "mm_token_type_ids": lambda: maker.media_types(ids),
            "global_attention_mask": lambda: maker.first_positions(ids, 1),
        }
    if maker.config_value("visual_feat_dim"):
        made |= {
            "visual_feats": lambda: maker.noise(batch, 5, maker.config_value("visual_feat_dim")),
            "visual_pos": lambda: maker.noise(batch, 5, 4),
        }
    if ids is not None and "pixel_values" in inputs:
        count = maker.config_value("latent_query_num", default=0)
        made["image_embeds_position_mask"] = lambda: maker.first_positions(ids, count)
        if maker.accepts("perceiver_embeddings"):
            made["image_attention_mask"] = lambda: maker.ones(
                *ids.shape, inputs["pixel_values"].shape[1]
            )
    return made


def _cross_states(maker: Maker) -> dict[str, Callable[[], Any]]:
    """Encoder outputs for a decoder used alone, whose cross-attention would else be idle."""
    width = maker.config_value("cross_attention_hidden_size", "encoder_hidden_size")
    width = width or maker.config_value("d_model", "hidden_size", default=32)
    crossing = re.compile(r"encoder_attn|cross_?attn|cross_?attention")
    if maker.accepts("decoder_input_ids") or maker.accepts("pixel_values"):
        return {}
    if not any(crossing.search(name) for name, _ in maker.model.named_modules()):
        return {}
    names = ("encoder_hidden_states", "cross_attention_states")
    return dict.fromkeys(names, lambda: maker.noise(maker.batch, 7, width))


def _entities(maker: Maker) -> dict[str, Callable[[], Any]]:
    """Two entities of two tokens each, for models with attention between words and entities."""
    if "MultipleChoice" in type(maker.model).__name__:
        return {}
    places = torch.full((maker.batch, 2, maker.config_value("max_mention_length", default=30)), -1)
    places[:, 0, :2] = torch.tensor([1, 2])
    places[:, 1, :2] = torch.tensor([4, 5])
    return {
        "entity_ids": lambda: 3 * maker.ones(maker.batch, 2),
        "entity_attention_mask": lambda: maker.ones(maker.batch, 2),
        "entity_token_type_ids": lambda: 0 * maker.ones(maker.batch, 2),
        "entity_position_ids": lambda: places,
    }


def _completed(maker: Maker, inputs: Inputs) -> Inputs:
    """The inputs with all companions the model accepts."""
    made = _companions(maker, inputs) | _cross_states(maker) | _entities(maker)
    return inputs | {k: make() for k, make in made.items() if maker.accepts(k) and k not in inputs}


def _candidates(maker: Maker) -> Iterator[Callable[[], Inputs]]:
    """Possible inputs, the most complete first; made on demand, as making them may already fail."""
    variants = (
        image_variants,
        video_variants,
        audio_variants,
        series_variants,
        other_variants,
    )
    media = [item for variant in variants for item in variant(maker)]
    if maker.accepts("input_ids"):
        yield from (partial(_with_text, maker, item) for item in media)
        yield maker.text
        yield from (partial(dict, input_ids=codes) for codes in maker.codes())
        if maker.accepts("decoder_input_ids"):
            yield from (
                partial(dict, maker.text(), decoder_input_ids=codes) for codes in maker.codes()
            )
    yield from (partial(dict, item) for item in media)


def tiny_inputs(model: PreTrainedModel, seed: int = 0, batch: int = 2) -> Inputs:
    """Valid inputs for `model(**inputs)`, the same for the same seed."""
    errors: list[str] = []
    maker = Maker(model, seed, batch)
    for candidate in _candidates(maker):
        try:
            inputs = _completed(maker, candidate())
            with torch.no_grad():
                model(**inputs)
        except Exception as error:  # any failure means: not this candidate
            errors.append(f"{type(error).__name__}: {error}")
        else:
            return inputs
    raise ValueError(f"no inputs fit {type(model).__name__}: " + " | ".join(dict.fromkeys(errors)))
