"""Tiny, randomly initialised models of every class that `transformers` registers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from torch import nn
from transformers import CONFIG_MAPPING, PreTrainedConfig, PreTrainedModel
from transformers.models.auto import modeling_auto

from zoo.configs import shrink

MAX_PARAMETERS = 5_000_000
IMPLEMENTATION = "attn_implementation"
CACHES = ("past_key_values", "cache_params", "state", "mems", "past_buckets_states", "cache")


@dataclass(frozen=True, order=True)
class ModelClass:
    """One registered model class; it is imported only when it is used.

    Importing lazily keeps the listing fast, and lets a class whose module needs a missing package
    fail by itself rather than take the whole listing down.
    """

    class_name: str
    model_type: str

    @property
    def model_class(self) -> type[PreTrainedModel]:
        """The class itself."""
        found: type[PreTrainedModel] | None = getattr(transformers, self.class_name, None)
        if found is None:
            raise ImportError(f"transformers does not export {self.class_name}")
        return found

    @property
    def config_class(self) -> type[PreTrainedConfig]:
        """The class's own configuration: some classes are registered for their parent's too."""
        declared: type[PreTrainedConfig] | None = self.model_class.config_class
        return declared or CONFIG_MAPPING[self.model_type]


def _registered() -> Iterator[ModelClass]:
    """Every (class, model type) pair of every auto mapping, repetitions included."""
    for mapping in dir(modeling_auto):
        if mapping.startswith("MODEL_") and mapping.endswith("MAPPING_NAMES"):
            for model_type, names in getattr(modeling_auto, mapping).items():
                for name in (names,) if isinstance(names, str) else names:
                    yield ModelClass(class_name=name, model_type=model_type)


def model_classes() -> list[ModelClass]:
    """All registered model classes, each once, sorted by name."""
    unique: dict[str, ModelClass] = {}
    for entry in sorted(_registered()):
        unique.setdefault(entry.class_name, entry)
    return list(unique.values())


def tiny_config(entry: ModelClass, changes: Mapping[str, Any] | None = None) -> PreTrainedConfig:
    """The smallest sensible configuration for this class, with some values changed."""
    return shrink(entry.config_class(), class_name=entry.class_name, changes=changes)


def _is_scale(module: nn.Module, name: str) -> bool:
    """Whether a vector multiplies activations, so that values near zero would mute the model."""
    scales = ("gamma", "scale", "lambda", "layer_scale")
    norm = "norm" in type(module).__name__.lower() and "bias" not in name and "beta" not in name
    return norm or any(word in name.lower() for word in scales)


def _redraw(model: PreTrainedModel, seed: int) -> None:
    """Draws all parameters anew, because default initialisations hide the effect of single heads.

    Matrices get a standard deviation of about 0.2, less where many inputs are summed so that
    deep stacks stay finite; scales stay near one; biases are small but never zero.
    """
    generator = torch.Generator().manual_seed(seed)
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.dim() < 2:
                value = noise * 0.1 + (1.0 if _is_scale(module, name) else 0.0)
            else:
                fan_in = max(1, parameter.numel() // max(1, len(parameter)))
                value = noise * min(0.2, 1.4 / math.sqrt(fan_in))
            parameter.data.copy_(value)


def build(
    entry: ModelClass, seed: int = 0, changes: Mapping[str, Any] | None = None
) -> PreTrainedModel:
    """A tiny model in evaluation mode and single precision, the same for the same seed."""
    changes = dict(changes or {})
    implementation = changes.pop(IMPLEMENTATION, None)
    config = tiny_config(entry, changes)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: PreTrainedModel = entry.model_class(config)
        model.float().eval()
    size = sum(parameter.numel() for parameter in model.parameters())
    if size > MAX_PARAMETERS:
        raise ValueError(f"{entry.class_name} is not tiny: {size} parameters")
    _redraw(model, seed)
    if implementation is not None:
        model.set_attn_implementation(implementation)
    return model


def _tensors(name: str, value: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Every floating point tensor in a nested output with its name, caches left out."""
    if isinstance(value, torch.Tensor):
        if value.is_floating_point():
            yield name, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if key not in CACHES:
                yield from _tensors(f"{name}.{key}", item)
    elif isinstance(value, list | tuple):
        for place, item in enumerate(value):
            yield from _tensors(f"{name}.{place}", item)


def run(model: nn.Module, inputs: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Runs the model and names every tensor that it returns.

    The random state is fixed: a few models draw noise in every forward pass (masked
    auto-encoders, hashing attention), and their outputs must still be comparable.
    """
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        return dict(_tensors("", model(**inputs)))
