"""Sentences as batches of tokens of about equal length, and which tokens are which words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from headcount.analysis.roles.sentences import Arc, Sentence
from headcount.errors import HeadcountError
from headcount.tasks.base import Processor

_BATCH = 64  # sentences at most
_WEIGHTS = 2**25  # attention weights of all heads that are held at a time


@dataclass(frozen=True)
class Example:
    """A sentence in tokens.

    Attributes:
        source: what the model reads.
        target: what its decoder reads, in an encoder-decoder.
        words: for every token of the source the word it is part of, −1 for none; empty without
            a tree.
        arcs: of the tree.
        types: for every token of the source which of two sentences it is of; empty where the
            tokenizer does not tell, or there is one sentence alone.
    """

    source: tuple[int, ...]
    target: tuple[int, ...] = ()
    words: tuple[int, ...] = ()
    arcs: tuple[Arc, ...] = ()
    types: tuple[int, ...] = ()


@dataclass(frozen=True)
class Tokens:
    """One side of a batch, batch × length each.

    Attributes:
        ids: tokens, padded on the right.
        seen: what is not padding.
        real: what is no special token either.
        types: which of two sentences a token is of; None where the model is not told.
    """

    ids: Tensor
    seen: Tensor
    real: Tensor
    types: Tensor | None = None


def make_examples(
    tokenizer: Processor, sentences: Sequence[Sentence], max_length: int
) -> list[Example]:
    """Tokenise sentences; targets stay empty.

    Words of a tree stand with a space between any two, and a token belongs to the word that its
    last character is of. So every fast tokenizer sees words as it is used to see them.

    Args:
        tokenizer: of the model.
        sentences: some with trees.
        max_length: in tokens; what is longer is cut.

    Raises:
        HeadcountError: there are trees, but the tokenizer cannot tell where its tokens are from.
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
    # A space belongs to the word after it: some tokenizers make it a token of its own.
    at = [n for n, word in enumerate(sentence.words) for _ in range(len(word) + (n > 0))]
    return tuple(at[end - 1] if end > start else -1 for start, end in offsets)


def special_tokens(tokenizer: Processor) -> frozenset[int]:
    """Tokens that are no part of the text; an unknown word is one."""
    ends = {tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id}
    ends |= {tokenizer.cls_token_id, tokenizer.sep_token_id}
    return frozenset(tokenizer.all_special_ids) - ({tokenizer.unk_token_id} - ends)


def count_tokens(sequences: Iterable[Sequence[int]], special: frozenset[int]) -> Counter[int]:
    """How often every token occurs that is not special."""
    counts: Counter[int] = Counter()
    for ids in sequences:
        counts.update(ids)
    return Counter({token: n for token, n in counts.items() if token not in special})


def batches(examples: Sequence[Example], heads: int) -> Iterator[list[Example]]:
    """The examples, longest first, as many at a time as memory is fine with.

    Args:
        examples: all.
        heads: of the whole model.
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
    """What the model reads of examples, with which of two sentences is which."""
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
