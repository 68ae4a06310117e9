"""Time of closing each head of a BERT-base alone: shared passes beside one evaluation per head.

The other side is what `Ablation.fit` does with a metric: a mask and a `Trainer.predict` per head.
Both sides see the same examples and close the same heads, in turns, and must give the same logits;
the shared passes take fewer examples and more masks at a time, in as many rows. Lengths are like
those of MNLI. By default some heads of each layer and few examples, for a few
minutes on two cores; `--heads 12 --examples 640` is the whole of it.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from typing import Any

import numpy as np
import torch
from measuring.claims import say
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

import headcount as hc
from headcount.analysis.ablation.replay import MaskedPasses, small_batch
from headcount.bench.speed import this_machine

MEAN, SHORTEST, LONGEST = 40, 12, 128  # tokens of a pair


def examples(number: int, deviation: float) -> list[dict[str, Any]]:
    """Longest first, as the tasks sort them."""
    generator = np.random.default_rng(0)
    lengths = sorted(generator.normal(MEAN, deviation, number).clip(SHORTEST, LONGEST))
    return [
        {"input_ids": generator.integers(1000, 30000, int(length)).tolist(), "labels": 0}
        for length in reversed(lengths)
    ]


def collate(rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    width = max(len(row["input_ids"]) for row in rows)
    ids = torch.zeros(len(rows), width, dtype=torch.long)
    mask = torch.zeros(len(rows), width, dtype=torch.long)
    for place, row in enumerate(rows):
        size = len(row["input_ids"])
        ids[place, :size], mask[place, :size] = torch.tensor(row["input_ids"]), 1
    labels = torch.tensor([row["labels"] for row in rows])
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=32)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--heads", type=int, default=1, help="of each layer, up to 12")
    parser.add_argument("--deviation", type=float, default=15.0, help="of the lengths, in tokens")
    chosen = parser.parse_args()
    torch.manual_seed(0)
    model = BertForSequenceClassification(BertConfig(num_labels=3)).eval()
    heads = hc.find_heads(model)
    everything = hc.HeadMask.all(heads)
    closed = [i for block in heads.blocks for i in block.indices[: chosen.heads]]
    masks = [everything - hc.HeadMask.from_indices(heads, [i]) for i in closed]
    data, size = examples(chosen.examples, chosen.deviation), small_batch(heads, chosen.batch_size)
    print(this_machine())
    wall, cpu, worst = [0.0, 0.0], [0.0, 0.0], 0.0
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, per_device_eval_batch_size=chosen.batch_size, disable_tqdm=True,
            report_to="none", dataloader_pin_memory=False,
        )  # fmt: skip
        trainer = Trainer(model, arguments, data_collator=collate)
        began = time.perf_counter(), time.process_time()
        batch = _inputs(collate(data[-size:]))
        passes = MaskedPasses(model, batch, chosen.batch_size)
        print(f"proving the shared passes: {time.perf_counter() - began[0]:.1f} s, once")
        wall[1], cpu[1] = time.perf_counter() - began[0], time.process_time() - began[1]
        for start in range(0, len(data), chosen.batch_size):
            some = data[start : start + chosen.batch_size]
            began = time.perf_counter(), time.process_time()
            expected = []
            for mask in masks:
                with hc.masked(model, mask):
                    expected.append(trainer.predict(some).predictions)  # type: ignore[arg-type]
            wall[0] += time.perf_counter() - began[0]
            cpu[0] += time.process_time() - began[1]
            began = time.perf_counter(), time.process_time()
            parts = [
                passes.run(_inputs(collate(some[i : i + size])), masks, torch.clone)
                for i in range(0, len(some), size)
            ]
            found = [torch.cat(part) for part in zip(*parts, strict=True)]
            wall[1] += time.perf_counter() - began[0]
            cpu[1] += time.process_time() - began[1]
            for a, b in zip(expected, found, strict=True):
                worst = max(worst, float(np.abs(np.asarray(a) - b.numpy()).max()))
            ratios = f"{wall[0] / wall[1]:.2f}, of processor time {cpu[0] / cpu[1]:.2f}"
            print(f"  after {start + len(some)} examples: ratio {ratios}", flush=True)
    print(f"{len(masks)} heads closed alone, {len(data)} examples, batches of {chosen.batch_size}")
    print(f"one evaluation per head {wall[0]:.1f} s, shared passes {wall[1]:.1f} s")
    print(f"largest difference of a logit {worst:.1e}")
    say("one evaluation per head / shared passes", wall[0] / wall[1], at_least=1)
    say("the same in processor time", cpu[0] / cpu[1], at_least=1)


def _inputs(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: value for name, value in batch.items() if name != "labels"}


if __name__ == "__main__":
    main()
