"""Sentence encoders: models whose answer to a text is one vector.

What sentence-transformers does after the model is no part of the weights that are saved with it.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from sentence_transformers.sentence_transformer.modules import Pooling
from torch import Tensor, nn
from transformers import (
    MODEL_FOR_TEXT_ENCODING_MAPPING,
    AutoConfig,
    AutoModel,
    AutoModelForTextEncoding,
    PreTrainedModel,
)
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.utils.generic import ModelOutput

from headcount.errors import HeadcountError
from headcount.loading.folder import NO_CODE, first_line, loading, place_of
from headcount.loading.module_list import MODULES, has_modules
from headcount.tasks.models import load_for, refuse_length
from headcount.tasks.sentence_folder import VECTOR, at_hand, folder_of, later_modules

POOLINGS = ("mean", "cls", "max")


def load_sentence_encoder(
    source: str, pooling: str | None, longest: int, prompt_tokens: int = 0
) -> PreTrainedModel:
    """An encoder whose logits are the vectors of texts, and whose labels are vectors, too.

    Args:
        source: a folder of sentence-transformers or its name on the hub, or a bare encoder; pruned
            or not.
        pooling: how a bare encoder makes one vector of those of the tokens; None for one that says
            it.
        longest: how many tokens texts have at most.
        prompt_tokens: how many of them are a prompt, for poolings that leave it out.

    Raises:
        HeadcountError: it is not said how it pools, its folder is not understood, or it reads
            fewer tokens.
    """
    folder = folder_of(source)
    listed = has_modules(folder)
    if listed and pooling is not None:
        raise HeadcountError(
            f"{source} says in {MODULES} how it makes a vector, so pooling={pooling} does not fit; "
            "leave out that option"
        )
    if not listed and pooling not in POOLINGS:
        raise HeadcountError(
            f"{source} has no {MODULES} that says how it makes one vector of a text; give --option "
            "pooling=mean, cls or max"
        )
    source = at_hand(source)
    after = later_modules(source, folder) if pooling is None else []
    model = load_for(_auto_class(source), source, "embedding", whole=False)
    refuse_length(source, model, longest)
    if pooling is not None:
        after = [Pooling(model.config.hidden_size, pooling)]
    width = _width(source, model, after)
    return as_sentence_encoder(model, after, folder if listed else None, width, prompt_tokens)


def _auto_class(source: str) -> Any:
    """The class that loads an encoder; of an encoder-decoder, its encoder."""
    place = place_of(source)
    with loading(source):
        config = AutoConfig.from_pretrained(place, **NO_CODE)
    # T5's encoder, once it is saved alone, no longer says that there was a decoder.
    if type(config) in MODEL_FOR_TEXT_ENCODING_MAPPING:
        return AutoModelForTextEncoding
    if getattr(config, "is_encoder_decoder", False):
        raise HeadcountError(
            f"{source} is an encoder-decoder ({config.model_type}) without an encoder for texts in "
            "transformers; give an encoder"
        )
    return AutoModel


def _width(source: str, model: PreTrainedModel, after: Sequence[nn.Module]) -> int:
    """How long the vectors are; refuses modules that make none of the model's hidden states."""
    ids = torch.zeros(1, 2, dtype=torch.long)
    states = torch.zeros(1, 2, model.config.hidden_size)
    try:
        return _embedded(after, states, {"input_ids": ids, "attention_mask": ids + 1}).shape[-1]
    except Exception as error:  # of any type: each module does something else
        reason = f"there is no {error}" if isinstance(error, KeyError) else first_line(error)
        raise HeadcountError(
            f"{source} lists modules in {MODULES} that make no vector of a text: {reason}; give an "
            "encoder with a pooling that fits its hidden states"
        ) from error


@dataclass
class VectorOutput(ModelOutput):
    """What a sentence encoder answers.

    Attributes:
        loss: the mean distance to the vectors that are wanted; None if none are given.
        logits: a vector for each text.
        last_hidden_state: a vector for each token, where no vectors are wanted.
        hidden_states: those of every layer, if they are asked for.
        attentions: the attention weights of every layer, if they are asked for.
    """

    loss: Tensor | None = None
    logits: Tensor | None = None
    last_hidden_state: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None


def as_sentence_encoder(
    model: PreTrainedModel,
    after: Sequence[nn.Module],
    folder: Path | None,
    width: int,
    prompt_tokens: int,
) -> PreTrainedModel:
    """Give an encoder a forward pass that ends with one vector per text; changes it in place.

    Args:
        model: the encoder.
        after: what sentence-transformers does after it, module by module.
        folder: has the files that belong to it besides its weights; None if there are none.
        width: how long the vectors are.
        prompt_tokens: how many tokens of each text are a prompt.
    """
    own = type(model)

    class Encoder(own):  # type: ignore[misc, valid-type]
        """The same model with one vector per text."""

        gives_vectors = True
        files, vector_size = folder, width

        def forward(self, *args: Any, labels: Tensor | None = None, **inputs: Any) -> Any:
            with _evaluating_alone(self):
                states = super().forward(*args, **inputs)
            given = {**inputs, "prompt_length": prompt_tokens}
            if self.config.output_hidden_states:
                given["all_layer_embeddings"] = states.hidden_states
            vectors = _embedded(after, states.last_hidden_state, given)
            loss: Any = None if labels is None else distance(vectors, labels).mean()
            # A graph of the model gives the last states, too: sentence-transformers pools them.
            last = states.last_hidden_state if labels is None else None
            inside = (states.get("hidden_states"), states.get("attentions"))
            return VectorOutput(loss, vectors, last, *inside)

        def train(self, mode: bool = True) -> Any:
            """Change the mode, but never draw dropout: the vectors to be met have none.

            A layer that gives up activations for memory does so only in training mode. It then
            draws what it asks for itself, and not a module inside it; few kinds of layers do.
            """
            super().train(mode)
            for part in self.modules():
                checkpoints = getattr(part, "gradient_checkpointing", False)
                is_layer = isinstance(part, GradientCheckpointingLayer)
                part.training = mode and (part is self or (is_layer and checkpoints))
            return self

    taken = inspect.signature(own.forward)
    labels = inspect.Parameter("labels", inspect.Parameter.KEYWORD_ONLY, default=None)
    known = [p for p in taken.parameters.values() if p.kind is not p.VAR_KEYWORD]
    # Batches are made of what a forward pass says that it takes.
    Encoder.forward.__signature__ = taken.replace(parameters=[*known, labels])  # type: ignore[attr-defined]
    # The name is written into config.json. By name and module, transformers knows the layers whose
    # hidden states and attention weights a class gives.
    Encoder.__name__, Encoder.__qualname__ = own.__name__, own.__qualname__
    Encoder.__module__ = own.__module__
    model.__class__ = Encoder
    return model


@contextmanager
def _evaluating_alone(module: nn.Module) -> Iterator[None]:
    """Have a module in evaluation mode, but none inside it, until the block ends.

    Meanwhile `in_training_step` says what gates have to know: the step is one of a training.
    """
    if not module.training:  # a graph is made of such a model, and shows no change of modes
        yield
        return
    module.training, module.in_training_step = False, True  # type: ignore[assignment]
    try:
        yield
    finally:
        module.training, module.in_training_step = True, False  # type: ignore[assignment]


def distance(vectors: Tensor, wanted: Tensor) -> Tensor:
    """The squared distance of each vector to the one that is wanted, relative to its size.

    For vectors of length 1 it is 2 − 2 cosine.
    """
    wanted = wanted.to(vectors)
    return (vectors - wanted).square().sum(-1) / wanted.square().sum(-1)


def _embedded(after: Sequence[nn.Module], states: Tensor, inputs: Mapping[str, Any]) -> Tensor:
    """What the modules make of hidden states; they also see what the model was given."""
    seen = inputs.get("attention_mask")
    if seen is None:
        seen = states.new_ones(states.shape[:2])
    features = {**inputs, "token_embeddings": states, "attention_mask": seen}
    for module in after:
        features = module.to(states.device)(features)
    return features[VECTOR]  # type: ignore[no-any-return]
