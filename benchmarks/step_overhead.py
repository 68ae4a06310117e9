"""What gates cost a training step of a BERT-base-size model: at most 1.03 × the step without them.

Both sides in one run, in turn, so that they see the same machine.
"""

from __future__ import annotations

import time

import torch
from measuring.claims import say
from transformers import BertConfig, BertForSequenceClassification

import headcount as hc
from headcount.bench.machine import this_machine
from headcount.bench.speed import ratio

REPEATS, WARM_UP, BATCH, LENGTH = 12, 2, 8, 64


def main() -> None:
    torch.manual_seed(0)
    model = BertForSequenceClassification(BertConfig()).train()
    batch = {
        "input_ids": torch.randint(5, 30_000, (BATCH, LENGTH)),
        "labels": torch.randint(2, (BATCH,)),
    }
    pruner = hc.JointDSP(keep=12)

    def step() -> float:
        started = time.perf_counter()
        model(**batch).loss.backward()
        model.zero_grad()
        return time.perf_counter() - started

    def gated_step(number: int) -> float:
        with pruner.attached(model) as gated:
            started = time.perf_counter()
            gated.begin_step(number, REPEATS)
            loss = model(**batch).loss + gated.penalty()
            loss.backward()
            model.zero_grad()
            return time.perf_counter() - started

    plain, gated = [], []
    for repeat in range(REPEATS + WARM_UP):
        plain.append(step())
        gated.append(gated_step(repeat))
    print(f"{this_machine()}; BERT-base, batch {BATCH}, length {LENGTH}, {REPEATS} pairs")
    say("step with gates / without", ratio(gated[WARM_UP:], plain[WARM_UP:]), at_most=1.03)


if __name__ == "__main__":
    main()
