"""The order of training examples: shuffled, but examples of a batch are about equally long."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from torch.utils.data import Sampler

POOL = 50  # batches that are sorted together: few would pad much, many would shuffle little


class LengthBuckets(Sampler[int]):
    """An order that depends on the seed and the epoch alone, so that a resumed run keeps it.

    (The sampler of `transformers` with the same aim draws from the global generator, whose state
    at the start of the epoch is lost when a run is resumed in the middle of it.)

    Args:
        lengths: of every example.
        batch_size: of all processes together.
        seed: of the run.
    """

    def __init__(self, lengths: Sequence[int], batch_size: int, seed: int) -> None:
        self.lengths, self.batch_size, self.seed = lengths, batch_size, seed
        self.epoch = 0

    def begin_epoch(self, epoch: int) -> None:
        """Called before every epoch.

        (Not `set_epoch`: accelerate calls that with its own count, which begins anew when a run
        is resumed.)
        """
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self.lengths)

    def __iter__(self) -> Iterator[int]:
        draw = random.Random(f"{self.seed} {self.epoch}")
        order = draw.sample(range(len(self.lengths)), len(self.lengths))
        pool = POOL * self.batch_size
        batches: list[list[int]] = []
        for start in range(0, len(order), pool):
            near = sorted(order[start : start + pool], key=lambda i: -self.lengths[i])
            batches += [near[i : i + self.batch_size] for i in range(0, len(near), self.batch_size)]
        # Only the last may be short, or all after it would be cut elsewhere.
        last = batches.pop() if len(batches[-1]) < self.batch_size else []
        draw.shuffle(batches)
        for batch in (*batches, last):
            yield from batch
