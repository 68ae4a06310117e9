"""The order of training examples."""

from __future__ import annotations

import random

import pytest

from headcount.runs.trainer import LengthBuckets

LENGTHS = [random.Random(i).randint(1, 100) for i in range(1003)]


def order(epoch: int, seed: int = 0) -> list[int]:
    buckets = LengthBuckets(LENGTHS, 16, seed)
    buckets.begin_epoch(epoch)
    return list(buckets)


def test_every_example_comes_once() -> None:
    assert sorted(order(0)) == list(range(len(LENGTHS)))


def test_the_order_depends_on_seed_and_epoch_alone() -> None:
    assert order(1) == order(1)
    assert order(1) != order(2)
    assert order(1) != order(1, seed=1)


def test_a_batch_holds_examples_of_about_one_length() -> None:
    drawn = order(0)
    batches = [drawn[i : i + 16] for i in range(0, len(drawn), 16)]
    padded = sum(len(b) * max(LENGTHS[i] for i in b) for b in batches)
    assert padded < 1.06 * sum(LENGTHS)
    firsts = [LENGTHS[batch[0]] for batch in batches]
    assert firsts != sorted(firsts, reverse=True)  # short and long batches take turns


@pytest.mark.parametrize("size", [1, 15, 16, 17])
def test_any_number_of_examples_will_do(size: int) -> None:
    assert sorted(LengthBuckets(LENGTHS[:size], 16, 0)) == list(range(size))
