"""How often the largest weight falls on a word's governor or dependent, and the baseline for it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from headcount.analysis.roles.batches import Example
from headcount.analysis.roles.criteria import Direction
from headcount.analysis.roles.statistics import largest_words

Key = tuple[str, Direction]


@dataclass(frozen=True)
class Looks:
    """Who should look at whom in a batch, one entry per arc and direction.

    Attributes:
        words: for every token its word, −1 for none; batch × tokens.
        row: of the batch.
        query: the word that looks.
        target: the word that is to be hit.
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
    this dependent. Where a word sees only what stands before it, so must the other word. An arc
    with a word that has no token left, because its sentence was cut, does not count.

    Args:
        examples: with trees.
        causal: whether words see only what stands before them.
    """

    def __init__(self, examples: Sequence[Example], causal: bool) -> None:
        self.causal = causal
        names = sorted({arc.relation for example in examples for arc in example.arcs})
        self.keys: list[Key] = [(n, way) for n in names for way in ("governor", "dependent")]
        self._number = {key: number for number, key in enumerate(self.keys)}
        self.offsets: defaultdict[Key, Counter[int]] = defaultdict(Counter)
        self.hits: dict[str, Tensor] = {}
        self.looked: dict[str, Tensor] = {}  # a block that serves several layers looks as often

    def looks(self, batch: Sequence[Example], length: int, device: torch.device) -> Looks | None:
        """Who should look at whom in this batch, which is counted; None if there are no trees."""
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
        chosen = largest_words(weights, looks.words)
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
        """The relative position that hits most often, and how often it does."""
        offset, count = self.offsets[key].most_common(1)[0]
        return offset, count / self.cases(key)

    def accuracy(self, key: Key, block: str) -> list[float]:
        """How often each head of a block hits."""
        number = self._number[key]
        return (self.hits[block][number] / self.looked[block][number]).tolist()
