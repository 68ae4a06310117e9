"""What attention weights say about heads: sums over queries, from which shares are made.

Weights are batch × heads × queries × keys. Only sums are kept of a batch.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import torch
from torch import Tensor

from headcount.analysis.roles.batches import Tokens
from headcount.analysis.roles.criteria import Criteria


@dataclass(frozen=True)
class Frequencies:
    """How frequent the tokens of the vocabulary are.

    Attributes:
        counts: how often each token occurs.
        common: whether a token is among the most frequent ones.
    """

    counts: Tensor
    common: Tensor

    @classmethod
    def of(cls, counted: Counter[int], vocabulary: int, common: int) -> Frequencies:
        """Make it from the counts of a text; the first `common` tokens count as frequent."""
        counts = torch.zeros(vocabulary)
        most = torch.zeros(vocabulary, dtype=torch.bool)
        for rank, (token, count) in enumerate(counted.most_common()):
            if token < vocabulary:  # no sentence has a token beyond it
                counts[token], most[token] = count, rank < common
        return cls(counts, most)


@dataclass(frozen=True)
class View:
    """What the queries of a batch can see, the same for all heads; batch × queries × keys.

    Attributes:
        visible: keys that a query can look at, including special tokens.
        real: visible keys that are real tokens.
        counts: queries that are real tokens and see at least two real ones; batch × queries.
        rare: keys that are among the rarest that the query sees.
        rare_counts: queries that count for rare tokens; batch × queries.
        chance: probability to hit a rare token by chance, summed over these queries.
        again: keys with the same token as the query, except the query itself.
        again_counts: queries that have such keys; batch × queries.
        again_chance: probability to hit such a key by chance, summed over these queries.
        places: for each offset from −reach to +reach, how many queries have a real token there.
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
        queries: the tokens that look.
        keys: the tokens that are looked at.
        frequencies: how frequent the tokens of the keys are.
        criteria: say which tokens are rare.
        causal: whether a query sees only itself and what comes before it.
        reach: length of the longest sequence.
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
    """Where a query's token occurs again; never between two languages."""
    same = queries.ids[:, :, None] == keys.ids[:, None, :]
    if queries is not keys:
        return torch.zeros_like(same)
    return same & ~torch.eye(same.shape[-1], dtype=torch.bool, device=same.device)


def _by_chance(wanted: Tensor, real: Tensor, counts: Tensor) -> float:
    """Probability that a random real token is a wanted one, summed over the queries that count."""
    return float((wanted.sum(-1) / real.sum(-1).clamp(min=1))[counts].double().sum())


class Sums:
    """Sums over all batches for one block, a number per head.

    Args:
        heads: number of heads of the block.
        reach: length of the longest sequence; offsets go from −reach to +reach.
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
        """Add the weights of a batch."""
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


def _per_head(values: Tensor, counts: Tensor) -> Tensor:
    return (values.double() * counts).sum((0, 2)).cpu()


def _hits(wanted: Tensor, where: Tensor) -> Tensor:
    """Whether each head looks at a wanted key; batch × heads × queries."""
    each = wanted[:, None].expand(-1, where.shape[1], -1, -1)
    return each.gather(-1, where[..., None])[..., 0]
