"""Joint pruning that gets smaller beside plain fine-tuning, in wall time for the same steps.

A BERT-base is fine-tuned without pruning, and pruned to 12 of 144 heads with `commit_at`, both by
the Trainer, in turns; the pause in which the heads are cut and a checkpoint is written counts.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch
from measuring.claims import say
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

import headcount as hc

KEEP, GOAL = 12, 0.85


def examples(number: int, length: int) -> list[dict[str, torch.Tensor]]:
    ids = torch.randint(5, 30_000, (number, length))
    return [{"input_ids": row, "labels": row[0] % 2} for row in ids]


def timed(make: Callable[[str], Trainer]) -> float:
    with tempfile.TemporaryDirectory() as folder:
        trainer = make(folder)
        started = time.perf_counter()
        trainer.train()
        return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--length", type=int, default=40)
    parser.add_argument("--commit-at", type=float, default=0.4)
    asked = parser.parse_args()
    torch.manual_seed(0)
    data = examples(asked.steps * asked.batch, asked.length)

    def options(folder: str) -> dict[str, Any]:
        model = BertForSequenceClassification(BertConfig())
        arguments = TrainingArguments(
            output_dir=folder, max_steps=asked.steps, per_device_train_batch_size=asked.batch,
            save_strategy="no", report_to=[], disable_tqdm=True, logging_steps=asked.steps,
            use_cpu=True, dataloader_pin_memory=False,
        )  # fmt: skip
        return {"model": model, "args": arguments, "train_dataset": data}

    def plain(folder: str) -> Trainer:
        return Trainer(**options(folder))

    def shrinking(folder: str) -> Trainer:
        pruner = hc.JointDSP(KEEP, commit_at=asked.commit_at)
        return hc.PruningTrainer(pruner=pruner, **options(folder))

    ratios = []
    for _ in range(asked.rounds):
        whole, small = timed(plain), timed(shrinking)
        ratios.append(small / whole)
        print(f"  plain {whole:.1f} s, pruned to {KEEP} heads {small:.1f} s", flush=True)
    print(
        f"torch {torch.__version__}, {torch.get_num_threads()} threads, {asked.steps} steps, ",
        end="",
    )
    print(f"commit_at {asked.commit_at}")
    say("joint pruning / fine-tuning, wall time", statistics.median(ratios), at_most=GOAL)


if __name__ == "__main__":
    main()
