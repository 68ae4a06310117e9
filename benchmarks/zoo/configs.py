"""Shrinks any `transformers` configuration to a few thousand parameters.

Nearly everything is decided by the *name* of a configuration attribute, so that a model class
released tomorrow is usually covered without touching this file.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeGuard

from transformers import PreTrainedConfig, ResNetConfig

from zoo.names import (
    DROPOUT,
    FIXED,
    HEAD_COUNT,
    HEADS,
    IMAGE,
    IMAGE_SIZE,
    KEY_VALUE_HEADS,
    LAYER_COUNT,
    LAYER_INDICES,
    MISSING,
    PATCH,
    REQUIRED,
    RULES,
    TOKEN_ID,
    VOCAB,
)
from zoo.overrides import CLASS_OVERRIDES, OVERRIDES


class _TokenIds:
    """Gives every special token a small id, the same one wherever it appears in a configuration."""

    def __init__(self) -> None:
        self._ids: dict[int, int] = {}

    def __call__(self, value: int) -> int:
        if value < VOCAB // 2:
            return value
        return self._ids.setdefault(value, VOCAB - 1 - len(self._ids))


def _is_int(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _mapped(value: Any, rule: Callable[[Any], Any]) -> Any:
    """Applies `rule` to a number, or to each number of a (nested) list of them."""
    if isinstance(value, list | tuple):
        return [_mapped(item, rule) for item in value]
    return rule(value) if _is_int(value) else value


def _zeroed(value: Any) -> Any:
    """Turns a dropout rate, or a list of them, into zeros of the same type."""
    if isinstance(value, list | tuple):
        return [_zeroed(item) for item in value]
    return (
        type(value)(0) if isinstance(value, int | float) and not isinstance(value, bool) else value
    )


def _shrunk_value(name: str, value: Any, token_ids: _TokenIds) -> Any:
    """The tiny counterpart of one attribute."""
    if DROPOUT.fullmatch(name):
        return _zeroed(value)
    if TOKEN_ID.fullmatch(name):
        return _mapped(value, token_ids)
    for pattern, rule in RULES:
        if re.fullmatch(pattern, name):
            return _mapped(value, rule)
    return list(value) if isinstance(value, tuple) else value


def _chosen_layers(per_layer: dict[str, list[Any]], count: int) -> list[int]:
    """Picks the layers to keep: the first of every kind, and two at least.

    Taking real layers of the default pattern keeps lists such as `layer_types` and
    `mlp_layer_types` consistent with one another.
    """
    named = [values for values in per_layer.values() if isinstance(values[0], str)]
    kinds: dict[str, int] = {}
    for index in range(count):
        kinds.setdefault(repr([values[index] for values in named or per_layer.values()]), index)
    chosen = sorted(kinds.values())[:4]
    spare = [index for index in range(count) if index not in chosen]
    return sorted(chosen + spare[: max(0, 2 - len(chosen))])


def _layer_lists(
    config: PreTrainedConfig, names: list[str]
) -> tuple[str | None, dict[str, list[Any]]]:
    """The attribute that counts the layers, and the lists with one item per layer."""
    for name in names:
        count = vars(config).get(name)
        if LAYER_COUNT.fullmatch(name) and _is_int(count) and count > 2:
            values = {other: vars(config).get(other) for other in names}
            lists = {k: v for k, v in values.items() if isinstance(v, list) and len(v) == count}
            return name, {
                k: v for k, v in lists.items() if k not in ("out_indices", "out_features")
            }
    return None, {}


def _shrunk_layers(
    config: PreTrainedConfig, names: list[str], token_ids: _TokenIds
) -> dict[str, Any]:
    """Fewer layers, with every per-layer list cut down to the same layers."""
    counter, lists = _layer_lists(config, names)
    if counter is None or not lists:
        return {}
    chosen = _chosen_layers(lists, vars(config)[counter])
    cut = {name: [values[index] for index in chosen] for name, values in lists.items()}
    return {counter: len(chosen)} | {k: _shrunk_value(k, v, token_ids) for k, v in cut.items()}


def _shrunk_stages(config: PreTrainedConfig) -> dict[str, Any]:
    """The features a parent configuration asks of a backbone, one per layer for plain layers."""
    indices = list(getattr(config, "out_indices", None) or [])
    if not indices or indices == list(getattr(type(config)(), "out_indices", None) or []):
        return {}
    if not _is_int(vars(config).get("num_hidden_layers")) or hasattr(config, "depths"):
        return {"out_indices": indices}
    last = max(2, len(indices))
    return {
        "num_hidden_layers": last,
        "out_indices": list(range(last + 1 - len(indices), last + 1)),
    }


def _shrunk_images(config: PreTrainedConfig, names: list[str]) -> dict[str, Any]:
    """A grid of four by four patches; hierarchical models keep their patches and get 64 pixels."""
    patch = getattr(config, "patch_size", None)
    plain = _is_int(patch) and patch > 4 and not hasattr(config, "depths")
    size = IMAGE if plain else 64
    if "fullatt_block_indexes" in names:
        return {"patch_size": PATCH, "window_size": 4 * PATCH}
    windows = (
        {"window_size": 2}
        if hasattr(config, "depths") and _is_int(vars(config).get("window_size"))
        else {}
    )
    found = {name: getattr(config, name, None) for name in names if IMAGE_SIZE.fullmatch(name)}
    shrunk = {
        name: _mapped(value, lambda _: size)
        for name, value in found.items()
        if value not in (None, 1)
    }
    return shrunk | ({"patch_size": PATCH} if plain else {}) | windows


def _shrunk_rope(config: PreTrainedConfig) -> dict[str, Any]:
    """Multi-dimensional rotary embeddings split the head dimension in three; keep that consistent.

    Models assume the split of the large model when it is missing, so it is always written down.
    """
    rope = vars(config).get("rope_parameters")
    known = getattr(config, "ignore_keys_at_rope_validation", None) or ()
    if not isinstance(rope, dict) or not ("mrope_section" in rope or "mrope_section" in known):
        return {}
    split = {"partial_rotary_factor": 1.0, "mrope_section": [2, 1, 1]}
    if any(isinstance(value, dict) for value in rope.values()):
        return {
            "rope_parameters": {
                kind: value | split if value else value for kind, value in rope.items()
            }
        }
    return {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0} | rope | split}


def _shrunk_key_values(config: PreTrainedConfig, names: list[str]) -> dict[str, Any]:
    """Grouped attention stays grouped: two key/value heads where there were fewer than heads."""
    shrunk = {}
    counts = [_read(config, name) for name in names if re.fullmatch(HEAD_COUNT, name)]
    heads = max((count for count in counts if _is_int(count)), default=0)
    for name in names:
        value = _read(config, name)
        if re.fullmatch(KEY_VALUE_HEADS, name) and _is_int(value) and 1 < value < heads:
            shrunk[name] = HEADS // 2
    return shrunk


def _shrunk_indices(config: PreTrainedConfig, names: list[str], layers: int) -> dict[str, Any]:
    """Lists of layer numbers keep those that still exist, or the last layer."""
    shrunk = {}
    for name in names:
        value = _read(config, name)
        if (
            re.fullmatch(LAYER_INDICES, name)
            and isinstance(value, list)
            and value
            and all(map(_is_int, value))
        ):
            shrunk[name] = [index for index in value if index < layers] or [layers - 1]
    return shrunk


def _read(config: PreTrainedConfig, name: str) -> Any:
    """The value of an attribute, wherever the class stores it; `MISSING` if it is not stored."""
    return vars(config).get(type(config).attribute_map.get(name, name), MISSING)


def _given(config: PreTrainedConfig, names: list[str]) -> dict[str, Any]:
    """Attributes a parent configuration chose for this one, as opposed to its own defaults."""
    try:
        default = type(config)()
    except Exception:  # a few configurations have no defaults at all
        return {}
    values = {name: _read(config, name) for name in names}
    plain = {
        k: v for k, v in values.items() if v is not MISSING and not isinstance(v, PreTrainedConfig)
    }
    return {k: v for k, v in plain.items() if v != _read(default, k)}


def tiny_parts(config: PreTrainedConfig, path: str = "") -> Iterator[tuple[str, PreTrainedConfig]]:
    """A configuration and all those inside it, each with its dotted path and a dot behind it."""
    yield path, config
    for name in declared(type(config)):
        part = vars(config).get(name)
        if isinstance(part, PreTrainedConfig):
            yield from tiny_parts(part, f"{path}{name}.")


def declared(config_class: type[PreTrainedConfig]) -> dict[str, Any]:
    """What the constructor of a configuration accepts, with the defaults."""
    parameters = inspect.signature(config_class.__init__).parameters.values()
    named = [p for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)]
    ignored = ("self", "dtype", "transformers_version", "architectures", "id2label", "label2id")
    return {p.name: p.default for p in named if p.name not in ignored}


def _optional(config_class: type[PreTrainedConfig], name: str) -> PreTrainedConfig | None:
    """The encoder of a modality that is switched off by default, such as vision."""
    part = getattr(config_class, "sub_configs_defaults", {}).get(name)
    found = getattr(part, "config_class", None)
    if name not in ("vision_config", "audio_config") or not inspect.isclass(found):
        return None
    return found() if issubclass(found, PreTrainedConfig) else None


def _shrunk_values(
    config: PreTrainedConfig,
    given: dict[str, Any],
    token_ids: _TokenIds,
    changes: Mapping[str, Any],
) -> dict[str, Any]:
    """The attributes whose names say what to do with them.

    Attributes that default to `None` are left out, unless a parent configuration has set them:
    the class derives them from the others, and should derive them from the tiny ones.
    """
    shrunk: dict[str, Any] = {}
    for name, default in declared(type(config)).items():
        value = _read(config, name)
        if value is None:
            value = _optional(type(config), name)
        if isinstance(value, PreTrainedConfig):
            shrunk[name] = shrink(value, token_ids, changes=_inside(changes, name))
        elif value is not MISSING and (
            default is not None or name in given or isinstance(value, list)
        ):
            shrunk[name] = _shrunk_value(name, value, token_ids)
        if value is None and name in REQUIRED:
            shrunk[name] = REQUIRED[name]
    return shrunk


def shrink(
    config: PreTrainedConfig,
    token_ids: _TokenIds | None = None,
    class_name: str | None = None,
    changes: Mapping[str, Any] | None = None,
) -> PreTrainedConfig:
    """Rebuilds `config`, and all configurations inside it, with tiny numbers.

    `class_name` is the model class the configuration is meant for, where that matters; `changes`
    are values that it must have besides, by their dotted paths.
    """
    changes = changes or {}
    if config.model_type == "timm_backbone":
        config = _without_timm(config)
    token_ids = token_ids or _TokenIds()
    names = list(declared(type(config)))
    given = _given(config, names)
    shrunk = _shrunk_values(config, given, token_ids, changes)
    shrunk |= _shrunk_layers(config, names, token_ids)
    shrunk |= _shrunk_stages(config)
    shrunk |= _shrunk_images(config, names)
    shrunk |= _shrunk_rope(config)
    shrunk |= _shrunk_key_values(config, names)
    counts = [
        shrunk[name] for name in names if LAYER_COUNT.fullmatch(name) and _is_int(shrunk.get(name))
    ]
    shrunk |= _shrunk_indices(config, names, layers=next(iter(counts), 2))
    shrunk |= {name: FIXED[name] for name in names if name in FIXED}
    shrunk |= OVERRIDES.get(config.model_type, {}) | OVERRIDES.get(type(config).__name__, {})
    shrunk |= CLASS_OVERRIDES.get(class_name or "", {})
    tiny = type(config)(**(shrunk | {k: v for k, v in changes.items() if "." not in k}))
    if hasattr(tiny, "vocab_size") and not hasattr(tiny, "pad_token_id"):
        tiny.pad_token_id = 0
    return tiny


def _inside(changes: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The changes of one configuration inside, by the paths that they have there."""
    front = f"{name}."
    return {k.removeprefix(front): v for k, v in changes.items() if k.startswith(front)}


def _without_timm(config: PreTrainedConfig) -> PreTrainedConfig:
    """A ResNet of `transformers` in place of one of `timm`, which may not be installed."""
    wanted: dict[str, Any] = {"out_indices": list(config.out_indices)}
    return ResNetConfig(**wanted)
