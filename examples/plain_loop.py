"""Prune heads in a training loop of your own: no Trainer, three lines more than without.

A small encoder learns whether the first word of a sentence comes again, and keeps 4 of 16 heads.
"""

from __future__ import annotations

import torch
from transformers import BertConfig, BertForSequenceClassification

import headcount as hc

STEPS, KEEP = 400, 4


def batches(seed: int = 0) -> list[dict[str, torch.Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    made = []
    for _ in range(STEPS):
        ids = torch.randint(5, 40, (32, 10), generator=generator)
        again = torch.rand(32, generator=generator) < 0.5
        ids[again, 7] = ids[again, 0]
        labels = (ids[:, 1:] == ids[:, :1]).any(1).long()
        made.append({"input_ids": ids, "labels": labels})
    return made


def small_encoder() -> BertForSequenceClassification:
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=40, hidden_size=64, num_hidden_layers=4, num_attention_heads=4,
        intermediate_size=128, num_labels=2,
    )  # fmt: skip
    return BertForSequenceClassification(config).train()


def accuracy(model: BertForSequenceClassification) -> float:
    model.eval()
    right = [model(**b).logits.argmax(-1) == b["labels"] for b in batches(seed=1)[:20]]
    return float(torch.cat(right).float().mean())


def main() -> None:
    model = small_encoder()
    pruner = hc.JointDSP(keep=KEEP)

    with pruner.attached(model) as gated:
        optimizer = torch.optim.AdamW(
            [{"params": list(model.parameters()), "lr": 1e-3}, *gated.parameter_groups()]
        )
        for step, batch in enumerate(batches()):
            gated.begin_step(step, STEPS)
            loss = model(**batch).loss + gated.penalty()
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(pruner.parameters(), 1.0)
            optimizer.step()
            if step % 100 == 99:
                print(f"step {step + 1}: loss {loss.item():.3f}, kept {', '.join(pruner.mask())}")

    removed = hc.remove_heads(model, pruner.mask())
    print(f"removed {len(removed)} heads, {KEEP} left; accuracy {accuracy(model):.2f} on new data")


if __name__ == "__main__":
    main()
