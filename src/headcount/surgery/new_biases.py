"""Give a model the biases that its class has a switch for, all of them 0.

Most language models have no bias in their attention, but many of their classes can have one: their
configuration has `attention_bias`. Switched on, it changes no answer, and any program that reads
the configuration knows about it.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Sequence

import torch
from torch import nn
from transformers import PreTrainedModel

from headcount.errors import HeadcountError
from headcount.surgery.outputs import Output

SWITCH = "attention_bias"


def missing_biases(model: nn.Module, outputs: Sequence[Output], why: str) -> set[str]:
    """The names of all biases that the model would get, so that these projections have one.

    Args:
        model: it is not changed.
        outputs: output projections of it.
        why: what needs the biases, for the error.

    Raises:
        HeadcountError: a projection has none, and the model's class no switch for it.
    """
    missing = [output for output in outputs if not output.has_bias]
    names = _switched_on(model) if missing and isinstance(model, PreTrainedModel) else set()
    for output in missing:
        if f"{output.name}.bias" not in names:
            raise HeadcountError(
                f"{why} the bias of {output.name}, which has none, and {type(model).__name__} has "
                f"no {SWITCH} that gives it one; give compensate: false"
            )
    return names


def have_biases(model: nn.Module, names: Collection[str]) -> None:
    """Give the model, in place, the biases that `missing_biases` found."""
    for name in names:
        module = model.get_submodule(name.removesuffix(".bias"))
        weight = module.weight
        assert isinstance(weight, nn.Parameter)
        zeros = torch.zeros(len(weight), dtype=weight.dtype, device=weight.device)
        module.bias = nn.Parameter(zeros, requires_grad=weight.requires_grad)
    if names:
        _switch(model.config)


def _switched_on(model: PreTrainedModel) -> set[str]:
    """The names of the biases that the model's class has with the switch on, and this one not."""
    config = copy.deepcopy(model.config)
    if not _switch(config):
        return set()
    with torch.device("meta"):
        other = type(model)._from_config(config)
    own = {name for name, _ in model.named_parameters()}
    found = {name for name, _ in other.named_parameters()} - own
    plain = all(name.endswith(".bias") and _is_linear(model, name) for name in found)
    return found if plain else set()


def _is_linear(model: nn.Module, name: str) -> bool:
    return isinstance(model.get_submodule(name.removesuffix(".bias")), nn.Linear)


def _switch(config: object) -> bool:
    """Switch biases on, in the part of a configuration that is about text; whether it has one."""
    text = getattr(config, "get_text_config", lambda: config)()
    if getattr(text, SWITCH, None) is not False:
        return False
    setattr(text, SWITCH, True)
    return True
