"""Grouped queries: any set of query heads can go, and a key-value head goes with its last query.

If every remaining key-value head serves equally many queries, the model's own code works as it is.
Otherwise keys and values are repeated here, once per query that reads them. This happens after the
cache, in a registered attention function. A family that calls no such function repeats them right
after their projections.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from headcount.heads.anatomy import Anatomy
from headcount.surgery.class_swap import hook_on
from headcount.surgery.resize import group_sizes, is_uneven, view_config

UNEVEN = "headcount_uneven_groups"


def serve_uneven_groups(home: nn.Module, anatomy: Anatomy, kept: Sequence[int]) -> None:
    """Repeat keys and values per query, if they serve different numbers of kept queries."""
    if anatomy.num_key_value_heads == anatomy.num_heads:
        return
    attention = home.get_submodule(anatomy.core)
    sizes = group_sizes(anatomy, kept)
    uneven = is_uneven(anatomy, kept)
    if anatomy.dispatches:
        vars(attention)["_headcount_group_sizes"] = sizes
        if uneven:
            view_config(attention).own["_attn_implementation"] = UNEVEN
        elif hasattr(attention.config, "own"):
            view_config(attention).own.pop("_attn_implementation", None)
        return
    for part in anatomy.parts:
        if all(segment.unit == "key_value" for segment in part.segments):
            hook = hook_on(home.get_submodule(part.path), RepeatOutputs, before=False)
            hook.repeats = sizes if uneven else (1,) * len(sizes)


def repeat_heads(states: Tensor, dim: int, repeats: Sequence[int]) -> Tensor:
    """Repeat each entry along `dim` its own number of times, keeping the order."""
    pieces = []
    for head, times in enumerate(repeats):
        shape = list(states.shape)
        shape[dim] = times
        pieces.append(states.narrow(dim, head, 1).expand(shape))
    return torch.cat(pieces, dim)


class RepeatOutputs:
    """After a key or value projection, repeat each head's values for the queries it serves."""

    repeats: tuple[int, ...]

    def __call__(self, module: nn.Module, args: Any, output: Tensor) -> Tensor:
        """The output with one entry per query."""
        by_head = output.unflatten(-1, (len(self.repeats), -1))
        return repeat_heads(by_head, by_head.dim() - 2, self.repeats).flatten(-2)


def attend_in_uneven_groups(
    module: Any, query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any
) -> Any:
    """The model's chosen attention function, on keys and values repeated per query."""
    chosen = module.config.whole._attn_implementation
    own = _own_eager_attention(type(module))
    attend = own if chosen in (None, "eager") else ALL_ATTENTION_FUNCTIONS[chosen]
    sizes = module._headcount_group_sizes
    return attend(
        module, query, repeat_heads(key, 1, sizes), repeat_heads(value, 1, sizes), *args, **kwargs
    )


def _own_eager_attention(cls: type) -> Callable[..., Any]:
    for base in cls.__mro__:
        function = getattr(sys.modules[base.__module__], "eager_attention_forward", None)
        if function is not None:
            return function  # type: ignore[no-any-return]
    raise LookupError(f"{cls.__name__} has no eager attention")


AttentionInterface.register(UNEVEN, attend_in_uneven_groups)
