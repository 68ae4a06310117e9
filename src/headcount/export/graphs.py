"""Which graphs a model is exported as: by whether it generates, and whether it has an encoder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from transformers import PreTrainedModel

from headcount.errors import HeadcountError
from headcount.export.decoder import decoder_graph
from headcount.export.encoder import encoder_graph
from headcount.export.encoder_decoder import encoder_decoder_graphs
from headcount.export.graph import Graph


def graphs_of(
    model: PreTrainedModel, tokenizer_inputs: tuple[str, ...] | None = None
) -> tuple[Graph, ...]:
    """The graphs of a model, named as the exports of Hugging Face's `optimum` are.

    Args:
        model: pruned or not, in evaluation mode.
        tokenizer_inputs: what its tokenizer makes, if it has one.

    Raises:
        HeadcountError: a model of this kind cannot be exported.
    """
    try:
        if not model.can_generate():
            return (encoder_graph(model, tokenizer_inputs),)
        if model.config.is_encoder_decoder:
            return encoder_decoder_graphs(model)
        return (decoder_graph(model),)
    except HeadcountError:
        raise
    except Exception as error:  # whatever a family says that needs more
        raise HeadcountError(
            f"{type(model).__name__} cannot be exported: it does not answer to "
            f"{model.main_input_name} alone; export a model of plain text or of images"
        ) from error


@contextmanager
def plain_attention(model: PreTrainedModel) -> Iterator[None]:
    """Let a model attend by plain products and sums.

    What fused attention says of a place that sees nothing (padding on the left) differs between
    engines, down to not-a-number; plain attention says the same everywhere.
    """
    chosen = model.config._attn_implementation
    model.set_attn_implementation("eager")
    try:
        yield
    finally:
        model.set_attn_implementation(chosen)
