"""Joint pruning that gets smaller beside plain fine-tuning, in wall time for the same steps.

A BERT-base is fine-tuned without pruning, and pruned to 12 of 144 heads with `commit_at`, both by
the Trainer, in turns. The pause in which heads are cut and a checkpoint is written happens once, so
it is counted for a training of a thousand steps: an epoch of 16,000 examples.
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
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

import headcount as hc
from headcount.bench.machine import this_machine

KEEP, GOAL, STEPS = 12, 0.85, 1000


def examples(number: int, length: int) -> list[dict[str, torch.Tensor]]:
    ids = torch.randint(5, 30_000, (number, length))
    return [{"input_ids": row, "labels": row[0] % 2} for row in ids]


class Clock(TrainerCallback):
    """Seconds of every step, by its number."""

    def __init__(self) -> None:
        self.steps: dict[int, float] = {}
        self.began = 0.0

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.began = time.perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.steps[state.global_step - 1] = time.perf_counter() - self.began


def timed(make: Callable[[str], Trainer]) -> tuple[dict[int, float], float]:
    """Seconds of every step, and of all that was not a step."""
    with tempfile.TemporaryDirectory() as folder:
        trainer, clock = make(folder), Clock()
        trainer.add_callback(clock)
        started = time.perf_counter()
        trainer.train()
        return clock.steps, time.perf_counter() - started - sum(clock.steps.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20, help="of each training")
    parser.add_argument("--rounds", type=int, default=2)
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

    cut = round(asked.commit_at * asked.steps)
    whole: list[float] = []
    gated: list[float] = []
    small: list[float] = []
    pauses: list[float] = []
    for _ in range(asked.rounds):
        steps, besides = timed(plain)
        whole += steps.values()
        others, more = timed(shrinking)
        gated += [seconds for step, seconds in others.items() if step < cut]
        small += [seconds for step, seconds in others.items() if step >= cut]
        pauses.append(more - besides)
    one, before, after = (statistics.median(times) for times in (whole, gated, small))
    pause = statistics.median(pauses)
    print(f"{this_machine()}; {asked.rounds} × {asked.steps} steps, commit_at {asked.commit_at}")
    print(f"a step {one:.2f} s, with gates {before:.2f} s, cut {after:.2f} s; pause {pause:.1f} s")
    share = asked.commit_at
    mixed = (share * before + (1 - share) * after + pause / STEPS) / one
    say("a step after the cut / a step of fine-tuning", after / one, at_most=1)
    say(f"joint pruning / fine-tuning, {STEPS} steps", mixed, at_most=GOAL)


if __name__ == "__main__":
    main()
