"""Handover in a training loop of your own: learn with all heads, cut in the middle, train on.

The same encoder and task as in plain_loop.py. Nothing is learned besides the model, so there are no
gates and no groups for the optimizer, which lets go of the heads with the model.
"""

from __future__ import annotations

import torch
from plain_loop import KEEP, STEPS, accuracy, batches, small_encoder

import headcount as hc


def main() -> None:
    model = small_encoder()
    data = batches()
    pruner = hc.Handover(keep=KEEP)
    pruner.bind(hc.find_heads(model))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    for step, batch in enumerate(data):
        if pruner.is_due(step, STEPS):
            mask = pruner.operate(model, data[:8], step, STEPS)  # ranks, and fits what stays
            removed = hc.cut_with_optimizer(model, mask, optimizer)
            optimizer.state.clear()  # its moments are of gradients with all heads
            print(f"step {step}: removed {len(removed)} heads, kept {', '.join(mask)}")
        loss = model(**batch).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 99:
            print(f"step {step + 1}: loss {loss.item():.3f}")

    print(f"{KEEP} heads left; accuracy {accuracy(model):.2f} on new data")


if __name__ == "__main__":
    main()
