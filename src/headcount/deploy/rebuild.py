"""The same weights in another class: what plain folders and modelling files are made of."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel

from headcount.deploy.regular import NotHeldError
from headcount.loading.folder import first_line


def read_config(cls: type[PreTrainedModel], config: Mapping[str, Any]) -> PreTrainedConfig:
    """A configuration as the class reads it from a file.

    Raises:
        NotHeldError: the class does not take it.
    """
    config_class: Any = cls.config_class
    try:
        read: PreTrainedConfig = config_class.from_dict(copy.deepcopy(dict(config)))
    except Exception as error:  # classes check their configurations in many ways
        raise NotHeldError(f"{cls.__name__} does not take it: {first_line(error)}") from error
    return read


def refuse_other_shapes(
    cls: type[PreTrainedModel], config: PreTrainedConfig, state: Mapping[str, Tensor]
) -> None:
    """Refuse a class that does not build, or builds tensors of other shapes than the weights.

    Raises:
        NotHeldError: what differs first.
    """
    try:
        with torch.device("meta"):
            built = cls(copy.deepcopy(config)).state_dict()
    except Exception as error:  # classes check their configurations in many ways
        raise NotHeldError(f"{cls.__name__} does not take it: {first_line(error)}") from error
    for key in sorted(built.keys() ^ state.keys()):
        raise NotHeldError(f"{cls.__name__} has {'no' if key in state else 'a'} {key}")
    for key, tensor in built.items():
        if tensor.shape != state[key].shape:
            raise NotHeldError(
                f"{cls.__name__} takes {key} in the shape {list(tensor.shape)}, not "
                f"{list(state[key].shape)}"
            )


def filled(
    cls: type[PreTrainedModel],
    config: PreTrainedConfig,
    state: Mapping[str, Tensor],
    model: PreTrainedModel,
) -> PreTrainedModel:
    """A model of a class with these weights.

    Args:
        cls: the class.
        config: its configuration.
        state: all its weights, by name.
        model: the model that they are from; its type and what it generates with stay.
    """
    made: PreTrainedModel = cls._from_config(config, dtype=model.dtype)
    made.load_state_dict(state)
    made.tie_weights()
    made.eval()
    if model.can_generate():
        made.generation_config = copy.deepcopy(model.generation_config)
    return made
