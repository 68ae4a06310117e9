"""What choosing heads costs beside training: Michel's scores and pipelined DSP, on a BERT-base.

Goals: at most 0.7 × the time of a training epoch on the same batches (forward pass, backward pass,
AdamW), and less memory. Neither needs gradients of weights, and a backward pass that ends at the
first gate; a forward pass and half a backward pass are what remains. All take turns on one thread,
in processor time. Memory is of the tensors that a step makes, without weights and the optimizer's
state.
"""

from __future__ import annotations

import time

import torch
from measuring.claims import say
from transformers import BertConfig, BertForSequenceClassification

import headcount as hc
from headcount.bench.size import peak_memory
from headcount.bench.speed import in_turn, ratio, this_machine
from headcount.pruners.michel import importance

BATCH, LENGTH, BATCHES, ROUNDS = 16, 40, 2, 4
COST = 0.7


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    print(this_machine())
    model = BertForSequenceClassification(BertConfig())
    batches = [
        {
            "input_ids": torch.randint(1000, 30_000, (BATCH, LENGTH)),
            "attention_mask": torch.ones(BATCH, LENGTH, dtype=torch.long),
            "labels": torch.randint(2, (BATCH,)),
        }
        for _ in range(BATCHES)
    ]
    heads = hc.find_heads(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    pruner = hc.PipelinedDSP(keep=12)

    def train() -> None:
        model.train()
        for batch in batches:
            model(**batch).loss.backward()
            optimizer.step()
            optimizer.zero_grad()

    def score() -> None:
        importance(model, heads, hc.HeadMask.all(heads), batches)

    def choose() -> None:
        model.train()
        with pruner.attached(model) as gated:
            own = torch.optim.AdamW(gated.parameter_groups())
            for step, batch in enumerate(batches):
                gated.begin_step(step, BATCHES)
                (model(**batch).loss + gated.penalty()).backward()
                own.step()
                own.zero_grad()

    training, *others = in_turn([train, score, choose], ROUNDS, 1, clock=time.process_time)
    names = ("Michel's scores", "pipelined DSP")
    for name, times in zip(names, others, strict=True):
        say(f"time of {name} / of training", ratio(times, training), at_most=COST)
    del batches[1:]
    held = peak_memory(train)
    for name, job in zip(names, (score, choose), strict=True):
        say(f"memory of {name} / of training", peak_memory(job) / held, at_most=1)


if __name__ == "__main__":
    main()
