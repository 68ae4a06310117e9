"""T5's relative position bias: one block computes a column per head for all later blocks.

A pruned block takes the columns of its own heads and passes the whole bias on.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from headcount.heads.anatomy import Anatomy
from headcount.surgery.class_swap import own_class, recast
from headcount.surgery.emptied import (
    argument_names,
    bias_of,
    empty_weights,
    note_tokens_in_cache,
)
from headcount.surgery.selection import take_heads


@dataclass(frozen=True)
class Style:
    """How the T5 attention of this version of transformers is written."""

    mask_in_bias: bool
    weights_on_request: bool
    takes_cache_position: bool


def _style(cls: Any) -> Style:
    source = inspect.getsource(cls.forward)
    return Style(
        mask_in_bias="position_bias = position_bias + " in source,
        weights_on_request="if output_attentions" in source,
        takes_cache_position="cache_position" in inspect.signature(cls.compute_bias).parameters,
    )


def share_whole_bias(attention: nn.Module, anatomy: Anatomy, kept: Sequence[int]) -> None:
    """Let a T5 block that has only these heads left share the bias with the others."""
    recast(attention, SharesBias)
    vars(attention).update(
        _bias_heads=tuple(kept),
        _bias_born=anatomy.num_heads,
        _bias_output=anatomy.output,
        _bias_arguments=argument_names(attention),
        _bias_style=_style(own_class(type(attention))),
    )


class SharesBias:
    """The forward pass of a T5 block with fewer heads than its position bias has columns."""

    _bias_heads: tuple[int, ...]
    _bias_born: int
    _bias_output: str
    _bias_arguments: tuple[str, ...]
    _bias_style: Style

    def compute_bias(self: Any, *args: Any, **kwargs: Any) -> Tensor:
        """The columns of this block's heads; the whole bias is stored for later blocks."""
        whole: Tensor = super().compute_bias(*args, **kwargs)  # type: ignore[misc]
        self._bias_whole = whole
        return take_heads(whole, 1, self._bias_heads, self._bias_born)

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        """Attend with the bias of its own heads, and return the bias of all heads."""
        given = dict(zip(self._bias_arguments, args, strict=False)) | kwargs
        if not self._bias_heads:
            return self._answer_without_heads(given)
        shared = given.get("position_bias")
        if shared is not None:
            given["position_bias"] = take_heads(shared, 1, self._bias_heads, self._bias_born)
        output, own, *weights = super().forward(**given)  # type: ignore[misc]
        if shared is None:
            shared = self._whole_bias(own, given)
        return (output, shared, *weights)

    def _whole_bias(self: Any, own: Tensor, given: dict[str, Any]) -> Tensor:
        if not self.has_relative_attention_bias:
            return own[:, :1]  # zeros, and perhaps the mask: the same for every head
        whole: Tensor = self.__dict__.pop("_bias_whole")
        return with_mask(self, whole[:, :, -own.shape[2] :], given)

    def _answer_without_heads(self: Any, given: dict[str, Any]) -> Any:
        hidden, shared = given["hidden_states"], given.get("position_bias")
        if shared is None:
            shared = self._bias_for_others(given, hidden)
        note_tokens_in_cache(self, given, hidden)
        output = bias_of(self.get_submodule(self._bias_output), hidden)
        if self._bias_style.weights_on_request and not given.get("output_attentions"):
            return output, shared
        return output, shared, empty_weights(self, given, hidden)

    def _bias_for_others(self: Any, given: dict[str, Any], hidden: Tensor) -> Tensor:
        past_states, mask = given.get("past_key_values"), given.get("mask")
        past = past_states.get_seq_length(self.layer_idx) if past_states is not None else 0
        source, queries = given.get("key_value_states"), hidden.shape[1]
        keys = past + queries if source is None else source.shape[1]
        keys = keys if mask is None else mask.shape[-1]
        if not self.has_relative_attention_bias:
            return with_mask(self, hidden.new_zeros(1, 1, queries, keys), given)
        if self._bias_style.takes_cache_position:
            place = {"cache_position": given.get("cache_position")}
            rows = given.get("query_length") or past + queries
        else:
            place, rows = {"past_seen_tokens": past}, queries
        self.compute_bias(rows, keys, device=hidden.device, **place)
        whole: Tensor = self.__dict__.pop("_bias_whole")
        return with_mask(self, whole[:, :, -queries:], given)


def with_mask(attention: Any, bias: Tensor, given: dict[str, Any]) -> Tensor:
    """Add the mask to the bias, as earlier versions of transformers do."""
    mask: Tensor | None = given.get("mask")
    if mask is None or not attention._bias_style.mask_in_bias:
        return bias
    return bias + mask[:, :, :, : bias.shape[-1]]
