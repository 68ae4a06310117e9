"""Joint pruning that gets smaller beside plain fine-tuning, in wall time for the same steps.

A BERT-base is fine-tuned without pruning, and pruned to 12 of 144 heads by attrition, both by the
Trainer, in turns. A short training goes through about the same sizes at about the same shares of
its steps as a long one (the large ones for a little longer), so every size counts with the median
of its steps. The pauses in which heads are cut and a checkpoint is written do not grow with the
training: they are counted for a thousand steps, an epoch of 16,000 examples. From the same steps,
what DSP would take that decides at 40 %.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections import defaultdict
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
from headcount.bench.speed import this_machine

KEEP, GOAL, STEPS, COMMIT_AT = 12, 0.85, 1000, 0.4


def examples(number: int, length: int) -> list[dict[str, torch.Tensor]]:
    ids = torch.randint(5, 30_000, (number, length))
    return [{"input_ids": row, "labels": row[0] % 2} for row in ids]


class Clock(TrainerCallback):
    """Seconds of every step, and how many heads the model had."""

    def __init__(self) -> None:
        self.steps: dict[int, float] = {}
        self.heads: dict[int, int] = {}
        self.began = 0.0

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.heads[state.global_step] = len(hc.find_heads(kwargs["model"]))
        self.began = time.perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.steps[state.global_step - 1] = time.perf_counter() - self.began


def timed(make: Callable[[str], Trainer]) -> tuple[Clock, float]:
    """Seconds of every step, and of all that was not a step."""
    with tempfile.TemporaryDirectory() as folder:
        trainer, clock = make(folder), Clock()
        trainer.add_callback(clock)
        started = time.perf_counter()
        trainer.train()
        return clock, time.perf_counter() - started - sum(clock.steps.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=16, help="of each training")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--length", type=int, default=40)
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
        return hc.PruningTrainer(pruner=hc.Attrition(KEEP), **options(folder))

    whole: list[float] = []
    by_size: dict[int, list[float]] = defaultdict(list)
    pauses: list[float] = []
    for turn in range(asked.rounds):
        results = {make: timed(make) for make in (plain, shrinking)[:: 1 if turn % 2 else -1]}
        (unpruned, besides), (pruned, more) = results[plain], results[shrinking]
        whole += unpruned.steps.values()
        for step, seconds in pruned.steps.items():
            by_size[pruned.heads[step]].append(seconds)
        pauses.append(more - besides)
    one, pause = statistics.median(whole), statistics.median(pauses)
    sizes = {heads: statistics.median(by_size[heads]) for heads in sorted(by_size, reverse=True)}
    print(f"{this_machine()}; {asked.rounds} × {asked.steps} steps; all pauses {pause:.1f} s")
    for heads, seconds in sizes.items():
        share = len(by_size[heads]) / asked.rounds / asked.steps
        print(f"{heads} heads in {share:.0%} of the steps: {seconds / one:.3f} of a plain step")
    steps = asked.rounds * asked.steps
    mixed = sum(len(by_size[heads]) * seconds for heads, seconds in sizes.items()) / steps
    first, last = sizes[max(sizes)], sizes[KEEP]
    decided = COMMIT_AT * first + (1 - COMMIT_AT) * last + pause / (len(sizes) - 1) / STEPS
    say("a step after the last cut / a step of fine-tuning", last / one, at_most=1)
    say(f"pruning by attrition / fine-tuning, {STEPS} steps", (mixed + pause / STEPS) / one,
        at_most=GOAL)  # fmt: skip
    say(f"DSP that decides at {COMMIT_AT:.0%} / fine-tuning", decided / one, at_most=1)


if __name__ == "__main__":
    main()
