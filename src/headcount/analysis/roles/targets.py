"""What the decoder of an encoder-decoder reads: given translations, or the model's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from headcount.analysis.roles.batches import Example, Tokens, batches, padded
from headcount.analysis.roles.sentences import Sentence
from headcount.errors import HeadcountError
from headcount.heads.blocks import HeadMap
from headcount.runs.progress import Progress
from headcount.tasks.base import Processor


def with_given_targets(
    model: PreTrainedModel,
    tokenizer: Processor,
    examples: Sequence[Example],
    sentences: Sequence[Sentence],
    max_length: int,
) -> list[Example]:
    """Examples with the translations of their sentences."""
    texts = [sentence.target or "" for sentence in sentences]
    targets = targets_of(model, tokenizer, texts, max_length)
    return [replace(one, target=ids) for one, ids in zip(examples, targets, strict=True)]


def with_own_targets(
    model: PreTrainedModel,
    heads: HeadMap,
    examples: Sequence[Example],
    pad: int,
    max_length: int,
    progress: Progress,
) -> list[Example]:
    """Examples with what the model makes of them greedily."""
    progress.begin("translating", len(examples))
    found: list[Example] = []
    for batch in batches(examples, len(heads)):
        tokens = padded([one.source for one in batch], frozenset(), pad, model.device)
        targets = own_targets(model, tokens, max_length)
        found += [replace(one, target=ids) for one, ids in zip(batch, targets, strict=True)]
        progress.advance(len(found))
    return found


def targets_of(
    model: PreTrainedModel, tokenizer: Processor, targets: Sequence[str], max_length: int
) -> list[tuple[int, ...]]:
    """What the decoder reads when it writes these translations."""
    found: Any = tokenizer(text_target=list(targets), truncation=True, max_length=max_length)
    shift = getattr(model, "prepare_decoder_input_ids_from_labels", None)
    if shift is None:  # a model without an output layer
        start = model.config.decoder_start_token_id
        return [(start, *ids[:-1]) for ids in found["input_ids"]]
    return [tuple(shift(labels=torch.tensor([ids]))[0].tolist()) for ids in found["input_ids"]]


def own_targets(model: PreTrainedModel, tokens: Tokens, max_length: int) -> list[tuple[int, ...]]:
    """What the decoder reads when the model translates greedily."""
    if not model.can_generate():
        raise HeadcountError(
            f"{type(model).__name__} has no output layer to translate with; give the translations "
            "of the sentences with --target"
        )
    written: Tensor = model.generate(
        input_ids=tokens.ids, attention_mask=tokens.seen.long(), num_beams=1, do_sample=False,
        max_length=None, max_new_tokens=max_length - 1,
    )  # type: ignore[operator]  # fmt: skip
    end = model.generation_config.eos_token_id
    ends = set(end if isinstance(end, list) else [end])
    return [_until_end(row, ends) for row in written.tolist()]


def _until_end(row: list[int], ends: set[int | None]) -> tuple[int, ...]:
    """Without the end, which the decoder never reads; BART begins with the same token."""
    place = next((n for n, token in enumerate(row) if n and token in ends), len(row))
    return tuple(row[:place])
