"""A block without heads: it computes no attention and adds the bias of its output projection.

The residual path and the normalisation are outside the block and stay. The cache still counts the
tokens, because `transformers` asks the first layer's cache for the length of the sequence.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor, nn
from transformers.cache_utils import EncoderDecoderCache

from headcount.heads import families
from headcount.heads.anatomy import AfterProjection, Anatomy
from headcount.surgery.class_swap import own_class, recast


def empty(home: nn.Module, anatomy: Anatomy) -> None:
    """Let a block without heads run without attention."""
    attention = home.get_submodule(anatomy.core)
    recast(home.get_submodule(anatomy.output), BiasOnly)
    recast(attention, Emptied)
    vars(attention).update(
        _emptied_after_projection=anatomy.after_projection,
        # If the home module is not the attention module itself, the projection is outside of it.
        _emptied_output="" if anatomy.core else anatomy.output,
        _emptied_arguments=argument_names(attention),
    )


class Emptied:
    """The forward pass of a block without heads."""

    _emptied_after_projection: AfterProjection
    _emptied_output: str
    _emptied_arguments: tuple[str, ...]

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        """Return what the block's own class returns, in the same form."""
        given = dict(zip(self._emptied_arguments, args, strict=False)) | kwargs
        hidden = given[self._emptied_arguments[0]]
        note_tokens_in_cache(self, given, hidden)
        output = hidden.new_zeros(*hidden.shape[:-1], 0)
        if self._emptied_output:
            output = bias_of(self.get_submodule(self._emptied_output), hidden)
        after = self._emptied_after_projection
        residual = given[after.residual] if after.residual else None
        for name in after.modules:
            module = getattr(self, name)
            if residual is not None and not isinstance(module, nn.Dropout):
                output, residual = output + residual, None
            output = module(output)
        if residual is not None:
            output = output + residual
        if after.returns == "output":
            return output
        if after.returns == "output[, weights]" and not given.get("output_attentions"):
            return (output,)
        weights = empty_weights(self, given, hidden)
        return (
            (output, weights, None)
            if after.returns == "output, weights, None"
            else (output, weights)
        )


class BiasOnly:
    """The forward pass of an output projection that has no inputs left."""

    def forward(self: Any, combined: Tensor, *args: Any) -> Tensor:
        """The bias, at every position of the input."""
        return bias_of(self, combined)


def bias_of(projection: Any, hidden: Tensor) -> Tensor:
    """What the output projection gives when all its inputs are zero.

    It takes no memory: it is a view of the same numbers for every position of the input.
    """
    bias = getattr(projection, "bias", None)
    width = projection.weight.shape[0 if isinstance(projection, nn.Linear) else 1]
    answer = hidden.new_zeros(1) if bias is None else bias
    if not torch.is_grad_enabled():  # in inference mode a view would still ask for gradients
        answer = answer.detach()
    return answer.expand(*hidden.shape[:-1], width)


def note_tokens_in_cache(attention: Any, given: dict[str, Any], hidden: Tensor) -> None:
    """Store one number per token, so that the cache knows how many have passed.

    The number is not zero: earlier versions of transformers count the non-zero entries of a
    static cache.
    """
    past = _first(given, families.CACHE_ARGUMENTS)
    if past is None:
        return
    source = _first(given, families.SOURCE_ARGUMENTS)
    layer = next(getattr(attention, n) for n in families.LAYER_NUMBERS if hasattr(attention, n))
    position = given.get("cache_position")
    if isinstance(past, EncoderDecoderCache):
        if source is not None:
            if past.is_updated.get(layer):  # the source is the same for every token
                return
            past.is_updated[layer], position = True, None
        past = past.self_attention_cache if source is None else past.cross_attention_cache
    elif source is not None:
        return
    tokens = hidden if source is None else source
    placeholder = hidden.new_ones(tokens.shape[0], 1, tokens.shape[1], 1)
    past.update(placeholder, placeholder, layer, {"cache_position": position})


def empty_weights(attention: Any, given: dict[str, Any], hidden: Tensor) -> Tensor | None:
    """Attention weights of zero heads; None where the other blocks return none either."""
    implementation = getattr(getattr(attention, "config", None), "_attn_implementation", "eager")
    if implementation not in (None, "eager") or hidden.dim() != 3:
        return None
    batch, queries, _ = hidden.shape
    mask = _first(given, families.MASK_ARGUMENTS)
    source = _first(given, families.SOURCE_ARGUMENTS)
    keys = source.shape[1] if source is not None else queries
    if isinstance(mask, Tensor) and mask.dim() == 4:
        keys = mask.shape[-1]
    return hidden.new_zeros(batch, 0, queries, keys)


def _first(given: dict[str, Any], names: tuple[str, ...]) -> Any:
    return next((given[name] for name in names if given.get(name) is not None), None)


def argument_names(attention: nn.Module) -> tuple[str, ...]:
    """Argument names of a module's own forward pass, also after its class was swapped."""
    parameters = inspect.signature(own_class(type(attention)).forward).parameters
    return tuple(name for name in parameters if name != "self")
