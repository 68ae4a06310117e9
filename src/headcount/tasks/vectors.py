"""How similar two sets of vectors are, besides the cosine: similarities and nearest neighbours.

A vector may move as long as the sentences near it stay the same: that is what a search needs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from headcount.tasks.metrics import spearman

NEIGHBOURS = 10
FEWEST = 5 * NEIGHBOURS  # among fewer sentences, nearly all are near
_PAIRS = 20_000  # random pairs whose similarities are compared
_ROWS = 1024  # sentences whose neighbours are found at once


def unit(vectors: Any) -> Any:
    """The same vectors with length 1, a row each."""
    sizes = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.maximum(sizes, np.finfo(np.float64).tiny)


def same_similarities(own: Any, wanted: Any) -> float:
    """Spearman's correlation of the similarities of random pairs; the same pairs every time."""
    draw_pairs = np.random.default_rng(0)
    one, other = draw_pairs.integers(0, len(own), (2, _PAIRS))
    different = one != other
    one, other = one[different], other[different]
    return spearman((own[one] * own[other]).sum(-1), (wanted[one] * wanted[other]).sum(-1))


def same_neighbours(own: Any, index: Any, wanted: Any, number: int = NEIGHBOURS) -> float:
    """How many of each sentence's nearest neighbours are those that the unpruned encoder finds.

    Args:
        own: vectors of length 1 to search with.
        index: the vectors that are searched: `own` again, or those of the unpruned encoder.
        wanted: the unpruned encoder's vectors, which it searches with and in.
        number: how many neighbours.
    """
    same = 0
    for start in range(0, len(own), _ROWS):
        here = slice(start, start + _ROWS)
        found = _nearest(own[here], index, start, number)
        right = _nearest(wanted[here], wanted, start, number)
        same += sum(len(set(a) & set(b)) for a, b in zip(found, right, strict=True))
    return same / (number * len(own))


def _nearest(queries: Any, index: Any, start: int, number: int) -> Any:
    similar = queries @ index.T
    rows = np.arange(len(queries))
    similar[rows, start + rows] = -np.inf  # a sentence is not its own neighbour
    return np.argpartition(-similar, number - 1, axis=-1)[:, :number].tolist()
