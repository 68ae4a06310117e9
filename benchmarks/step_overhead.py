"""What gates cost a training step of a BERT-base-size model: at most 1.03 × the step without them.

Both sides in turn on one thread, in processor time. Gates are put in place once for a training, so
that is not timed; nor is the optimizer's step, which gates do not touch.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch
from measuring.claims import say
from transformers import BertConfig, BertForSequenceClassification

import headcount as hc
from headcount.bench.speed import in_turn, ratio, this_machine

PLACEMENTS, ROUNDS, BATCH, LENGTH = 4, 4, 8, 64


def measured() -> list[list[float]]:
    """Seconds of steps without gates, and with them; where the weights lie has its share."""
    model = BertForSequenceClassification(BertConfig()).train()
    batch = {
        "input_ids": torch.randint(5, 30_000, (BATCH, LENGTH)),
        "labels": torch.randint(2, (BATCH,)),
    }
    pruner = hc.JointDSP(keep=12)
    count = itertools.count()

    @contextmanager
    def gates() -> Iterator[None]:
        with pruner.attached(model):
            yield

    def step() -> None:
        model(**batch).loss.backward()
        model.zero_grad()

    def gated_step() -> None:
        pruner.begin_step(next(count), 2 * ROUNDS)
        step()

    return in_turn(
        [step, gated_step], ROUNDS, warm_up=1, clock=time.process_time, inside=[nullcontext, gates]
    )


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    plain: list[float] = []
    with_gates: list[float] = []
    for _ in range(PLACEMENTS):
        some, others = measured()
        plain += some
        with_gates += others
    print(f"{this_machine()}; BERT-base, batch {BATCH}, length {LENGTH}, {len(plain)} pairs")
    say("step with gates / without", ratio(with_gates, plain), at_most=1.03)


if __name__ == "__main__":
    main()
