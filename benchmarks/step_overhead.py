"""What gates cost a training step of a BERT-base-size model: at most 1.03 × the step without them.

Both sides in one run, in turn, so that they see the same machine.
"""

from __future__ import annotations

import statistics
import time

import torch
from transformers import BertConfig, BertForSequenceClassification

import headcount as hc

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
    ratios = [g / p for g, p in zip(gated[WARM_UP:], plain[WARM_UP:], strict=True)]
    spread = statistics.quantiles(ratios, n=4)
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, BERT-base, batch {BATCH}")
    print(f"step with gates / step without: median {statistics.median(ratios):.3f}, ", end="")
    print(f"quartiles {spread[0]:.3f} to {spread[2]:.3f}, {REPEATS} pairs (at most 1.03)")


if __name__ == "__main__":
    main()
