"""What attention weights say about heads: sums over queries, from which shares are made.

Weights are batch × heads × queries × keys. Nothing of a batch is kept but sums.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import torch
from torch import Tensor

from headcount.analysis.roles.batches import Tokens
from headcount.analysis.roles.criteria import Criteria


@dataclass(frozen=True)
class View:
    """What the queries of a batch can see, whichever head looks; batch × queries × keys.

    Attributes:
        visible: keys that a query may look at, special tokens among them.
        real: those that are real tokens.
        counts: queries that are real tokens and see two real ones at least; batch × queries.
        rare: keys that are among the rarest that the query sees.
        rare_counts: queries that count for rare tokens; batch × queries.
        chance: how often they would hit a rare token by chance, summed.
        again: keys with the query's own token, but for the query itself.
        again_counts: queries that have such keys; batch × queries.
        again_chance: how often they would hit one by chance, summed.
        places: for each offset from −reach to +reach, the queries with a real token there.
    """

    visible: Tensor
    real: Tensor
    counts: Tensor
    rare: Tensor
    rare_counts: Tensor
    chance: float
    again: Tensor
    again_counts: Tensor
    again_chance: float
    places: Tensor


@dataclass(frozen=True)
class Frequencies:
    """How often every token of the vocabulary occurs, and which are the most frequent."""

    counts: Tensor
    common: Tensor

    @classmethod
    def of(cls, counted: Counter[int], vocabulary: int, common: int) -> Frequencies:
        """From counts of a text."""
        counts = torch.zeros(vocabulary)
        most = torch.zeros(vocabulary, dtype=torch.bool)
        for rank, (token, count) in enumerate(counted.most_common()):
            if token < vocabulary:  # a token that the sentences do not have is not asked for
                counts[token], most[token] = count, rank < common
        return cls(counts, most)


def view(
    queries: Tokens,
    keys: Tokens,
    frequencies: Frequencies,
    criteria: Criteria,
    *,
    causal: bool,
    reach: int,
) -> View:
    """What the queries of a batch can see, and what of that is rare.

    Args:
        queries: the side that looks.
        keys: the side that is looked at.
        frequencies: of the keys' tokens.
        criteria: what is rare.
        causal: whether a query sees only what stands before it, and itself.
        reach: the longest sequence.
    """
    visible = keys.seen[:, None, :].expand(-1, queries.ids.shape[1], -1)
    if causal:
        visible = visible.tril()
    real = visible & keys.real[:, None, :]
    counts = queries.real & (real.sum(-1) >= 2)
    often = frequencies.counts.to(keys.ids.device)[keys.ids][:, None, :]
    often = often.masked_fill(~real, torch.inf)
    few = often.topk(min(criteria.rarest, often.shape[-1]), largest=False).values
    rare = real & (often <= few[..., -1:])
    common = frequencies.common.to(keys.ids.device)[keys.ids.gather(1, often.argmin(-1))]
    rare_counts = counts & ~common
    again = _again(queries, keys) & real
    again_counts = counts & again.any(-1)
    _, query, key = (real & counts[..., None]).nonzero(as_tuple=True)
    places = torch.bincount(key - query + reach, minlength=2 * reach + 1).cpu()
    return View(
        visible, real, counts, rare, rare_counts, _by_chance(rare, real, rare_counts),
        again, again_counts, _by_chance(again, real, again_counts), places,
    )  # fmt: skip


def _again(queries: Tokens, keys: Tokens) -> Tensor:
    """Where a query's token stands once more; two languages have no tokens in common."""
    same = queries.ids[:, :, None] == keys.ids[:, None, :]
    if queries is not keys:
        return torch.zeros_like(same)
    return same & ~torch.eye(same.shape[-1], dtype=torch.bool, device=same.device)


def _by_chance(wanted: Tensor, real: Tensor, counts: Tensor) -> float:
    """How often a look at any real token hits a wanted one, summed over the queries that count."""
    return float((wanted.sum(-1) / real.sum(-1).clamp(min=1))[counts].double().sum())


class Sums:
    """Sums of one block, a number per head.

    Args:
        heads: that the block has.
        reach: the longest sequence, so that offsets run from −reach to +reach.
    """

    def __init__(self, heads: int, reach: int) -> None:
        self.reach = reach
        self.queries = self.rare_queries = self.again_queries = 0
        self.chance = self.again_chance = 0.0
        self.places = torch.zeros(2 * reach + 1, dtype=torch.long)
        self.confidence, self.entropy, self.special, self.rare, self.again = torch.zeros(
            5, heads, dtype=torch.float64
        )
        self.offsets = torch.zeros(heads, 2 * reach + 1, dtype=torch.long)

    def add(self, weights: Tensor, seen: View) -> None:
        """Count a batch."""
        batch, heads, length, _ = weights.shape
        counts = seen.counts[:, None, :].expand(batch, heads, length)
        largest, where = weights.masked_fill(~seen.real[:, None], -1.0).max(-1)
        at_all = weights.masked_fill(~seen.visible[:, None], -1.0).amax(-1)
        log_seen = seen.visible.sum(-1).clamp(min=2).log()
        entropy = torch.special.entr(weights).sum(-1) / log_seen[:, None, :]
        self.queries += int(seen.counts.sum())
        self.rare_queries += int(seen.rare_counts.sum())
        self.chance += seen.chance
        self.again_queries += int(seen.again_counts.sum())
        self.again_chance += seen.again_chance
        self.places += seen.places
        self.confidence += _per_head(largest, counts)
        self.entropy += _per_head(entropy, counts)
        self.special += _per_head(at_all > largest, counts)
        self.rare += _per_head(_hits(seen.rare, where), seen.rare_counts[:, None, :])
        self.again += _per_head(_hits(seen.again, where), seen.again_counts[:, None, :])
        offsets = where - torch.arange(length, device=where.device)
        width = 2 * self.reach + 1
        flat = offsets + self.reach + width * torch.arange(heads, device=where.device)[:, None]
        found = torch.bincount(flat[counts], minlength=heads * width)
        self.offsets += found.reshape(heads, width).cpu()


def _hits(wanted: Tensor, where: Tensor) -> Tensor:
    """Whether the key that each head looks at is a wanted one; batch × heads × queries."""
    each = wanted[:, None].expand(-1, where.shape[1], -1, -1)
    return each.gather(-1, where[..., None])[..., 0]


def _per_head(values: Tensor, counts: Tensor) -> Tensor:
    return (values.double() * counts).sum((0, 2)).cpu()


def word_weights(weights: Tensor, words: Tensor) -> Tensor:
    """Attention between words: to a word the sum over its tokens, from it their mean.

    So did Clark et al. (2019): the weights of a word still sum up to those on real tokens.

    Args:
        weights: batch × heads × tokens × tokens.
        words: for every token its word, −1 for none; batch × tokens.

    Returns:
        Batch × heads × words × words.
    """
    count = int(words.max()) + 1
    member = torch.nn.functional.one_hot(words + 1, count + 1)[..., 1:].to(weights.dtype)
    sizes = member.sum(1).clamp(min=1)
    to_words = weights @ member[:, None]
    from_words: Tensor = member.transpose(1, 2)[:, None] @ to_words
    return from_words / sizes[:, None, :, None]


def largest_words(weights: Tensor, words: Tensor) -> Tensor:
    """The word with the largest weight for each word; batch × heads × words."""
    between = word_weights(weights, words)
    count = between.shape[-1]
    there = (words[..., None] == torch.arange(count, device=words.device)).any(1)
    return between.masked_fill(~there[:, None, None, :], -1.0).argmax(-1)
