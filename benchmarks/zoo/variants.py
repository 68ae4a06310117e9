"""The other forms that a model class offers: its configuration, one switch at a time.

Where the weights of a head lie may depend on any switch of a configuration: multi-query or not,
fused or not, with biases, norms, gates or without. So every switch is turned once, every count of
key-value heads and every kind of layer that the class knows is tried, the head size is changed,
the plain attention implementation is used, and a few switches are turned together.
"""

from __future__ import annotations

import inspect
import random
import re
import types
import typing
from collections.abc import Iterator
from typing import Any, Literal

from transformers import PreTrainedConfig

from zoo.configs import declared, tiny_parts
from zoo.models import IMPLEMENTATION, ModelClass, tiny_config
from zoo.names import HEAD_COUNT, HEAD_DIM, HEADS, KEY_VALUE_HEADS

Changes = dict[str, Any]
"""Values by the dotted path of their attribute, such as `text_config.attention_bias`."""

MIXTURES = 4

# What attributes may say whose type is any word.
_POSITIONS = ["absolute", "relative", "relative_key", "relative_key_query", "rotary"]
WORDS = {
    "attention_type": ["original_full", "block_sparse", "divided_space_time", "space_only"],
    "position_embedding_type": _POSITIONS,
    "position_embeddings_type": _POSITIONS,
}

# Switches that decide what a model returns or learns, how it starts or which kernel it uses.
ELSEWHERE = re.compile(
    r"use_cache|tie_word_embeddings|.*output_.*|return_.*|.*loss.*|.*init.*|task_.*|early_stopping|"
    r"freeze.*|disable_custom_kernels|use_mambapy|use_mamba_kernels|deterministic_flash_attn|"
    r"onnx_export|is_training|init_.*|use_associative_scan|ctc_.*|summary_.*|apply_spec_augment|"
    r".*gumbel.*|router_.*|convert_sync_batchnorm|.*stop_gradient.*|use_weighted_layer_sum|"
    r"lsh_backward|use_masking|use_weighted_masking"
)


def variants(entry: ModelClass) -> Iterator[Changes]:
    """Every change to try on this class, each once, the plainest first."""
    tried: list[Changes] = []
    for changes in _all_changes(entry):
        if changes not in tried:
            tried.append(changes)
            yield changes


def _all_changes(entry: ModelClass) -> Iterator[Changes]:
    yield {IMPLEMENTATION: "eager"}
    single = list(_single_changes(tiny_config(entry)))
    yield from ({path: value} for path, value in single)
    yield from _shared_values(tiny_config(entry))
    by_path: dict[str, list[Any]] = {IMPLEMENTATION: ["eager"]}
    for path, value in single:
        by_path.setdefault(path, []).append(value)
    draw = random.Random(entry.class_name)
    for _ in range(MIXTURES if single else 0):
        paths = draw.sample(sorted(by_path), draw.randint(2, len(by_path)))
        yield {path: draw.choice(by_path[path]) for path in sorted(paths)}


def said(changes: Changes) -> str:
    """A variant in words."""
    return ", ".join(f"{path}={value}" for path, value in changes.items())


def _single_changes(config: PreTrainedConfig) -> Iterator[tuple[str, Any]]:
    for path, part in tiny_parts(config):
        known = declared(type(part))
        hints = _hints(type(part))
        for name in known:
            if name in declared(PreTrainedConfig) or ELSEWHERE.fullmatch(name):
                continue
            here = vars(part).get(type(part).attribute_map.get(name, name))
            for value in _others(name, here, hints.get(name), part):
                yield f"{path}{name}", value


def _shared_values(config: PreTrainedConfig) -> Iterator[Changes]:
    """Three times the layers, the last of which use keys and values of earlier ones."""
    for path, part in tiny_parts(config):
        known = declared(type(part))
        if not {"num_kv_shared_layers", "layer_types"} <= {*known}:
            continue
        layers = int(part.num_hidden_layers)
        lists = {name: vars(part).get(name) for name in known}
        yield {
            f"{path}num_kv_shared_layers": layers,
            f"{path}num_hidden_layers": 3 * layers,
            **{
                f"{path}{name}": 3 * value
                for name, value in lists.items()
                if isinstance(value, list) and len(value) == layers
            },
        }


def _hints(config_class: type[PreTrainedConfig]) -> dict[str, Any]:
    """The types of its attributes; not resolved, since some name what only a type checker knows."""
    found: dict[str, Any] = {}
    for base in reversed(config_class.__mro__):
        found |= inspect.get_annotations(base)
    return found


def _others(name: str, here: Any, hint: Any, config: PreTrainedConfig) -> Iterator[Any]:
    """The values besides the one here that an attribute may have."""
    if isinstance(here, bool) or (here is None and bool in _options(hint)):
        yield not here
    elif name != "num_kv_shared_layers" and re.fullmatch(KEY_VALUE_HEADS, name) and _is_int(here):
        yield from (count for count in (1, 2, HEADS) if count != here)
    elif re.fullmatch(HEAD_COUNT, name) and _is_int(here):
        yield 2 * here
    elif name == "head_dim" and _is_int(here) and _has_heads(config):
        yield 2 * HEAD_DIM
    elif name.endswith("lora_rank") and _is_int(here):
        yield None
    elif name == "layer_types" and isinstance(here, list):
        yield from ([kind] * len(here) for kind in _kinds(here, config) if {kind} != set(here))
    elif isinstance(here, str):
        words = _literals(hint) or WORDS.get(name, [])
        yield from (word for word in words if word != here)


def _kinds(here: list[str], config: PreTrainedConfig) -> list[str]:
    """The kinds of layers of a class: those that it has, and those that it has a size for."""
    more = ["full_attention"]
    more += ["sliding_attention"] * bool(vars(config).get("sliding_window"))
    more += ["chunked_attention"] * bool(vars(config).get("attention_chunk_size"))
    return list(dict.fromkeys(here + more))


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _has_heads(config: PreTrainedConfig) -> bool:
    return any(re.fullmatch(HEAD_COUNT, name) for name in declared(type(config)))


def _options(hint: Any) -> tuple[Any, ...]:
    """The types that a hint leaves open: those of a union, or the one that it is."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return tuple(option for part in typing.get_args(hint) for option in _options(part))
    return (hint,)


def _literals(hint: Any) -> list[str]:
    """The words that a hint allows."""
    found = [typing.get_args(option) for option in _options(hint) if _is_literal(option)]
    return [word for words in found for word in words if isinstance(word, str)]


def _is_literal(option: Any) -> bool:
    return typing.get_origin(option) is Literal
