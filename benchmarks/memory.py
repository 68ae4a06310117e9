"""What gates add to the memory of a training step of a BERT-base, with AdamW: at most 1 %.

Weights, the optimizer's state and the tensors of the step at its worst moment, as torch's allocator
counts them; the same on any machine. In short batches the worst moment is the optimizer's step, in
long ones the end of the forward pass. Gates hold nothing at either: what comes out of one is made
again for the backward pass. Gradient checkpointing works with gates and spares nearly all the rest.
"""

from __future__ import annotations

import torch
from measuring.claims import say
from transformers import BertConfig, BertForSequenceClassification

import headcount as hc
from headcount.bench.size import peak_memory
from headcount.bench.speed import this_machine

SHAPES = ((16, 40), (16, 128))  # batch and length
MORE = 1.01


def measure(batch: int, length: int) -> tuple[float, float, float]:
    """Bytes of a step without gates, with them, and with gates and checkpointing."""
    torch.manual_seed(0)
    model = BertForSequenceClassification(BertConfig(use_cache=False)).train()
    optimizer = torch.optim.AdamW(model.parameters())
    pruner = hc.JointDSP(keep=12)
    inputs = {
        "input_ids": torch.randint(1000, 30_000, (batch, length)),
        "labels": torch.randint(2, (batch,)),
    }

    def step() -> None:
        model(**inputs).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    def gated_step() -> None:
        with pruner.attached(model) as gated:
            gated.begin_step(0, 1)
            (model(**inputs).loss + gated.penalty()).backward()
            optimizer.step()
            optimizer.zero_grad()

    # AdamW keeps two numbers for each of the weights.
    held = 3 * sum(p.numel() * p.element_size() for p in model.parameters())
    plain, gated = peak_memory(step), peak_memory(gated_step)
    model.gradient_checkpointing_enable()
    return held + plain, held + gated, held + peak_memory(gated_step)


def main() -> None:
    print(this_machine())
    for batch, length in SHAPES:
        plain, gated, checkpointed = measure(batch, length)
        shape = f"batch {batch}, length {length}"
        print(f"{shape}: {plain / 1e6:.0f} MB, with gates {gated / 1e6:.0f} MB", flush=True)
        say(f"memory with gates / without, {shape}", gated / plain, at_most=MORE)
    say(f"gates and checkpointing / gates, {shape}", checkpointed / gated, at_most=1)


if __name__ == "__main__":
    main()
