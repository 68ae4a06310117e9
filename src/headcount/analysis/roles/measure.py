"""Measure what the heads of a model do: read the sentences once, add up, then judge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from headcount.analysis.roles.batches import (
    Example,
    Tokens,
    batches,
    count_tokens,
    make_examples,
    padded,
    special_tokens,
)
from headcount.analysis.roles.criteria import Criteria
from headcount.analysis.roles.judge import judge
from headcount.analysis.roles.reader import read, refuse_without_tokens, telling, translates
from headcount.analysis.roles.result import Roles
from headcount.analysis.roles.sentences import Sentence
from headcount.analysis.roles.statistics import Frequencies
from headcount.errors import HeadcountError
from headcount.heads.blocks import HeadMap
from headcount.heads.find import find_heads
from headcount.heads.mask import HeadMask
from headcount.runs.progress import Progress, Silent
from headcount.tasks.base import Processor

MAX_LENGTH = 128  # tokens


def find_roles(
    model: PreTrainedModel,
    tokenizer: Processor,
    sentences: Sequence[Sentence],
    *,
    name: str = "the model",
    data: str = "the text",
    frequencies: Sequence[str] | None = None,
    mask: HeadMask | None = None,
    criteria: Criteria | None = None,
    max_length: int = MAX_LENGTH,
    progress: Progress | None = None,
) -> Roles:
    """Find what each head does.

    Encoders and decoders are looked at for positions, syntax and rare tokens; a decoder's heads
    see only what stands before. In an encoder-decoder trees are about the source, so that its
    decoder has no syntactic heads; cross-attention has neither positional nor syntactic ones.
    Where sentences have no translation, the decoder reads the model's own greedy one.

    Args:
        model: a text model, pruned or not.
        tokenizer: its own; for trees a fast one.
        sentences: what it reads, some with trees.
        name: of the model, for titles.
        data: name of the sentences.
        frequencies: text that tells how frequent the tokens of the source are; the sentences
            themselves, if None.
        mask: whose kept heads are to be marked.
        criteria: when a head has a role; the paper's, if None.
        max_length: longer sentences are cut, in tokens.
        progress: who wants to know.

    Raises:
        HeadcountError: the model does not read text, does not tell its weights, or the mask is for
            another model.
    """
    criteria, progress = criteria or Criteria(), progress or Silent()
    heads = find_heads(model)
    refuse_without_tokens(model, heads)
    if mask is not None:
        mask.refuse_other_model(heads)
    special, pad = special_tokens(tokenizer), int(tokenizer.pad_token_id)
    longest = _longest(model, tokenizer, max_length)
    examples = make_examples(tokenizer, sentences, longest)
    with telling(model):
        if translates(heads) and all(one.target is not None for one in sentences):
            examples = with_given_targets(model, tokenizer, examples, sentences, longest)
        elif translates(heads):
            examples = with_own_targets(model, heads, examples, pad, longest, progress)
        elif any(one.target is not None for one in sentences):
            raise HeadcountError(
                f"{type(model).__name__} is no encoder-decoder and reads no translations; leave "
                "the target out"
            )
        often = _frequencies(tokenizer, examples, frequencies, special, criteria.common)
        measured = read(model, heads, examples, often, special, pad, criteria, progress)
    found, relations = judge(heads, measured, criteria)
    kept = None if mask is None else mask.names
    return Roles(name, data, len(examples), heads.layout, found, relations, criteria, kept)


def _frequencies(
    tokenizer: Processor,
    examples: Sequence[Example],
    text: Sequence[str] | None,
    special: frozenset[int],
    common: int,
) -> tuple[Frequencies, Frequencies]:
    sources: Sequence[Sequence[int]] = [example.source for example in examples]
    targets = [example.target for example in examples]
    vocabulary = 1 + max(max(ids, default=0) for ids in (*sources, *targets, sorted(special)))
    if text is not None:
        sources = tokenizer(list(text))["input_ids"]
    counts = (count_tokens(sources, special), count_tokens(targets, special))
    of_source, of_target = (Frequencies.of(count, vocabulary, common) for count in counts)
    return of_source, of_target


def _longest(model: PreTrainedModel, tokenizer: Processor, max_length: int) -> int:
    positions = getattr(model.config, "max_position_embeddings", None) or max_length
    return int(min(max_length, tokenizer.model_max_length, positions))


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
