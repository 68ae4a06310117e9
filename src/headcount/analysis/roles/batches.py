"""Sentences as tokens, in batches of about equal length.

`make_examples` makes tokens of sentences and notes which tokens belong to which word. For an
encoder-decoder, `with_given_targets` or `with_own_targets` adds what the decoder reads. `batches`
and `padded` make tensors of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from headcount.analysis.roles.sentences import Arc, Sentence
from headcount.errors import HeadcountError
from headcount.heads.blocks import HeadMap
from headcount.runs.progress import Progress
from headcount.tasks.base import Processor

_BATCH = 64  # sentences per batch, at most
_WEIGHTS = 2**25  # attention weights of all heads that are held at one time, at most


@dataclass(frozen=True)
class Example:
    """A sentence in tokens.

    Attributes:
        source: tokens that the model reads.
        target: tokens that the decoder of an encoder-decoder reads.
        words: for each token of the source, the number of its word, or −1; empty without a tree.
        arcs: arcs of the tree.
        types: for each token of the source, which of two sentences it is from. Empty for single
            sentences, or if the tokenizer does not give it.
    """

    source: tuple[int, ...]
    target: tuple[int, ...] = ()
    words: tuple[int, ...] = ()
    arcs: tuple[Arc, ...] = ()
    types: tuple[int, ...] = ()


@dataclass(frozen=True)
class Tokens:
    """One side of a batch; every tensor is batch × length.

    Attributes:
        ids: the tokens, padded on the right.
        seen: whether a token is not padding.
        real: whether a token is neither padding nor special.
        types: which of two sentences a token is from; None if the model does not need it.
    """

    ids: Tensor
    seen: Tensor
    real: Tensor
    types: Tensor | None = None


def make_examples(
    tokenizer: Processor, sentences: Sequence[Sentence], max_length: int
) -> list[Example]:
    """Make tokens of sentences; targets stay empty.

    The words of a tree are joined by spaces, as every tokenizer expects them. A token belongs to
    the word of its last character.

    Args:
        tokenizer: the model's own tokenizer.
        sentences: the sentences, with or without trees.
        max_length: longest sequence in tokens; longer ones are cut.

    Raises:
        HeadcountError: there are trees, but the tokenizer does not give the place of its tokens.
    """
    trees = any(sentence.arcs for sentence in sentences)
    if trees and not tokenizer.is_fast:
        raise HeadcountError(
            f"{type(tokenizer).__name__} cannot tell which tokens a word became, so trees are of "
            "no use; give the sentences as --text, or a model with a fast tokenizer"
        )
    texts = [sentence.text for sentence in sentences]
    pairs = [sentence.pair for sentence in sentences]
    found: Any = tokenizer(
        texts, None if None in pairs else pairs, truncation=True, max_length=max_length,
        return_offsets_mapping=trees,
    )  # fmt: skip
    if not trees:
        return [
            Example(tuple(ids), types=tuple(types) if any(types) else ())
            for ids, types in zip(
                found["input_ids"], found.get("token_type_ids", [()] * len(texts)), strict=True
            )
        ]
    return [
        Example(tuple(ids), (), _words_of(sentence, offsets), sentence.arcs)
        for sentence, ids, offsets in zip(
            sentences, found["input_ids"], found["offset_mapping"], strict=True
        )
    ]


def _words_of(sentence: Sentence, offsets: Iterable[tuple[int, int]]) -> tuple[int, ...]:
    if not sentence.words:
        return ()
    # A space belongs to the word after it, since some tokenizers make it a separate token.
    at = [n for n, word in enumerate(sentence.words) for _ in range(len(word) + (n > 0))]
    return tuple(at[end - 1] if end > start else -1 for start, end in offsets)


def with_given_targets(
    model: PreTrainedModel,
    tokenizer: Processor,
    examples: Sequence[Example],
    sentences: Sequence[Sentence],
    max_length: int,
) -> list[Example]:
    """The examples, with the given translations of their sentences."""
    texts = [sentence.target or "" for sentence in sentences]
    targets = _targets_of(model, tokenizer, texts, max_length)
    return [replace(one, target=ids) for one, ids in zip(examples, targets, strict=True)]


def with_own_targets(
    model: PreTrainedModel,
    heads: HeadMap,
    examples: Sequence[Example],
    pad: int,
    max_length: int,
    progress: Progress,
) -> list[Example]:
    """The examples, with the translations that the model writes greedily."""
    progress.begin("translating", len(examples))
    found: list[Example] = []
    for batch in batches(examples, len(heads)):
        tokens = padded([one.source for one in batch], frozenset(), pad, model.device)
        targets = _own_targets(model, tokens, max_length)
        found += [replace(one, target=ids) for one, ids in zip(batch, targets, strict=True)]
        progress.advance(len(found))
    return found


def _targets_of(
    model: PreTrainedModel, tokenizer: Processor, targets: Sequence[str], max_length: int
) -> list[tuple[int, ...]]:
    """The tokens that the decoder reads while it writes these translations."""
    found: Any = tokenizer(text_target=list(targets), truncation=True, max_length=max_length)
    shift = getattr(model, "prepare_decoder_input_ids_from_labels", None)
    if shift is None:  # a model without an output layer
        start = model.config.decoder_start_token_id
        return [(start, *ids[:-1]) for ids in found["input_ids"]]
    return [tuple(shift(labels=torch.tensor([ids]))[0].tolist()) for ids in found["input_ids"]]


def _own_targets(model: PreTrainedModel, tokens: Tokens, max_length: int) -> list[tuple[int, ...]]:
    """The tokens that the decoder reads while the model translates greedily."""
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
    """Cut at the end token, which the decoder never reads; BART also begins with this token."""
    place = next((n for n, token in enumerate(row) if n and token in ends), len(row))
    return tuple(row[:place])


def special_tokens(tokenizer: Processor) -> frozenset[int]:
    """Tokens that are not part of the text; the token for unknown words is part of it."""
    ends = {tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id}
    ends |= {tokenizer.cls_token_id, tokenizer.sep_token_id}
    return frozenset(tokenizer.all_special_ids) - ({tokenizer.unk_token_id} - ends)


def count_tokens(sequences: Iterable[Sequence[int]], special: frozenset[int]) -> Counter[int]:
    """How often each token occurs, without special ones."""
    counts: Counter[int] = Counter()
    for ids in sequences:
        counts.update(ids)
    return Counter({token: n for token, n in counts.items() if token not in special})


def batches(examples: Sequence[Example], heads: int) -> Iterator[list[Example]]:
    """The examples in batches, longest first, as many at a time as fit into memory.

    Args:
        examples: all examples.
        heads: number of heads of the whole model, whose weights are held together.
    """
    order = sorted(examples, key=lambda e: (-max(len(e.source), len(e.target)), -len(e.target)))
    start = 0
    while start < len(order):
        longest = max(len(order[start].source), len(order[start].target))
        size = max(1, min(_BATCH, _WEIGHTS // (max(heads, 1) * longest**2)))
        yield order[start : start + size]
        start += size


def padded_sources(
    examples: Sequence[Example], special: frozenset[int], pad: int, device: torch.device
) -> Tokens:
    """The sources of some examples as one side of a batch, with the types of their tokens."""
    tokens = padded([one.source for one in examples], special, pad, device)
    if not any(one.types for one in examples):
        return tokens
    types = torch.zeros_like(tokens.ids)
    for row, one in enumerate(examples):
        types[row, : len(one.types)] = torch.tensor(one.types, dtype=types.dtype)
    return replace(tokens, types=types)


def padded(
    sequences: Sequence[Sequence[int]], special: frozenset[int], pad: int, device: torch.device
) -> Tokens:
    """Sequences as one side of a batch."""
    length = max(map(len, sequences))
    ids = torch.full((len(sequences), length), pad)
    seen = torch.zeros(len(sequences), length, dtype=torch.bool)
    for row, sequence in enumerate(sequences):
        ids[row, : len(sequence)] = torch.tensor(sequence)
        seen[row, : len(sequence)] = True
    real = seen & ~torch.isin(ids, torch.tensor(sorted(special), dtype=ids.dtype))
    return Tokens(ids.to(device), seen.to(device), real.to(device))
