"""How often the largest weight falls on a word's governor or dependent, and the baseline for it.

The baseline is the best fixed relative position. Attention between tokens becomes attention
between words first, see `word_weights`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from headcount.analysis.roles.batches import Example
from headcount.analysis.roles.criteria import Direction

Key = tuple[str, Direction]


@dataclass(frozen=True)
class Looks:
    """Which word should look at which in a batch, one entry per arc and direction.

    Attributes:
        words: for each token the number of its word, or −1; batch × tokens.
        row: number of the sentence in the batch.
        query: number of the word that looks.
        target: number of the word that it should look at.
        key: number of the relation and direction.
    """

    words: Tensor
    row: Tensor
    query: Tensor
    target: Tensor
    key: Tensor


class Relations:
    """Counts of all relations in both directions, and of the heads that hit them.

    Each arc counts in both directions: the dependent looks for its governor, and the governor for
    this dependent. With causal attention, a direction counts only if the other word comes before.
    An arc does not count if one of its words lost all tokens because the sentence was cut.

    Args:
        examples: the examples with trees.
        causal: whether words see only what comes before them.
    """

    def __init__(self, examples: Sequence[Example], causal: bool) -> None:
        self.causal = causal
        names = sorted({arc.relation for example in examples for arc in example.arcs})
        self.keys: list[Key] = [(n, way) for n in names for way in ("governor", "dependent")]
        self._number = {key: number for number, key in enumerate(self.keys)}
        self.offsets: defaultdict[Key, Counter[int]] = defaultdict(Counter)
        self.hits: dict[str, Tensor] = {}
        self.looked: dict[str, Tensor] = {}  # a block of several layers counts for each

    def looks(self, batch: Sequence[Example], length: int, device: torch.device) -> Looks | None:
        """Count the arcs of a batch, and list who should look at whom; None without trees."""
        found: list[tuple[int, int, int, int]] = []
        words = torch.full((len(batch), length), -1)
        for row, example in enumerate(batch):
            words[row, : len(example.words)] = torch.tensor(example.words, dtype=torch.long)
            there = set(example.words)
            for arc in example.arcs:
                if not {arc.dependent, arc.governor} <= there:
                    continue
                pairs: list[tuple[int, int, Direction]] = [
                    (arc.dependent, arc.governor, "governor"),
                    (arc.governor, arc.dependent, "dependent"),
                ]
                for query, target, direction in pairs:
                    if not self.causal or target < query:
                        key = (arc.relation, direction)
                        self.offsets[key][target - query] += 1
                        found.append((row, query, target, self._number[key]))
        if not found:
            return None
        return Looks(words.to(device), *torch.tensor(found, device=device).T)

    def add(self, block: str, weights: Tensor, looks: Looks) -> None:
        """Count the hits of a block's heads in a batch."""
        chosen = _largest_words(weights, looks.words)
        hit = chosen[looks.row, :, looks.query] == looks.target[:, None]
        size = len(self.keys)
        hits = self.hits.setdefault(block, torch.zeros(size, hit.shape[1]))
        hits.index_add_(0, looks.key.cpu(), hit.float().cpu())
        looked = self.looked.setdefault(block, torch.zeros(size))
        looked += torch.bincount(looks.key, minlength=size).cpu()

    def cases(self, key: Key) -> int:
        """How often the relation occurs."""
        return self.offsets[key].total()

    def baseline(self, key: Key) -> tuple[int, float]:
        """The relative position that hits the relation most often, and how often it does."""
        offset, count = self.offsets[key].most_common(1)[0]
        return offset, count / self.cases(key)

    def accuracy(self, key: Key, block: str) -> list[float]:
        """How often each head of a block hits the relation."""
        number = self._number[key]
        return (self.hits[block][number] / self.looked[block][number]).tolist()


def _largest_words(weights: Tensor, words: Tensor) -> Tensor:
    """The word with the largest weight for each word; batch × heads × words."""
    between = word_weights(weights, words)
    count = between.shape[-1]
    there = (words[..., None] == torch.arange(count, device=words.device)).any(1)
    return between.masked_fill(~there[:, None, None, :], -1.0).argmax(-1)


def word_weights(weights: Tensor, words: Tensor) -> Tensor:
    """Attention between words: the sum over the tokens looked at, the mean over those that look.

    This follows Clark et al. (2019). The weights of a word still sum up to its weight on real
    tokens.

    Args:
        weights: attention between tokens; batch × heads × tokens × tokens.
        words: for each token the number of its word, or −1; batch × tokens.

    Returns:
        Batch × heads × words × words.
    """
    count = int(words.max()) + 1
    member = torch.nn.functional.one_hot(words + 1, count + 1)[..., 1:].to(weights.dtype)
    sizes = member.sum(1).clamp(min=1)
    to_words = weights @ member[:, None]
    from_words: Tensor = member.transpose(1, 2)[:, None] @ to_words
    return from_words / sizes[:, None, :, None]
