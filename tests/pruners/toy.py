"""A toy task with planted heads: the labels are what a model says with only these heads open.

With K as many heads as were planted, the best mask is known.
"""

from __future__ import annotations

import torch
from torch import Tensor
from transformers import BertConfig, BertForSequenceClassification

import headcount as hc
from headcount import HeadMask
from headcount.pruners.base import Pruner

LAYERS, HEADS, EXAMPLES, BATCH = 3, 4, 512, 16


def planted(seed: int, alone: bool = False) -> tuple[BertForSequenceClassification, HeadMask]:
    """A model, and the heads that are worth finding.

    Args:
        seed: of the weights and of the heads.
        alone: plant one head in the whole model, not one in each layer.
    """
    config = BertConfig(
        hidden_size=32,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        intermediate_size=37,
        vocab_size=60,
        num_labels=3,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = BertForSequenceClassification(config)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            parameter.data = 0.25 * torch.randn(parameter.shape, generator=generator)
    heads = hc.find_heads(model)
    chosen = torch.randint(HEADS, (LAYERS,), generator=generator).tolist()
    names = [f"encoder.{layer}.{head}" for layer, head in enumerate(chosen)]
    names = [names[seed % LAYERS]] if alone else names
    return model.eval(), HeadMask.from_names(heads, names)


def examples(model: BertForSequenceClassification, mask: HeadMask) -> tuple[Tensor, Tensor]:
    """Random sentences, and what the model says of them with only the planted heads."""
    ids = torch.randint(5, 60, (EXAMPLES, 8), generator=torch.Generator().manual_seed(1))
    with torch.no_grad(), hc.masked(model, mask):
        return ids, model(input_ids=ids).logits


def learn(
    pruner: Pruner, seed: int, steps: int, learning_rate: float, alone: bool = False
) -> tuple[HeadMask, HeadMask]:
    """Train in a plain loop; the mask that was found, and the one that was planted.

    Args:
        pruner: the pruner.
        seed: of the task.
        steps: length of the training.
        learning_rate: of the model; 0 trains the pruner only.
        alone: see `planted`.
    """
    model, mask = planted(seed, alone)
    ids, targets = examples(model, mask)
    model.train().requires_grad_(learning_rate > 0)
    with pruner.attached(model) as gated:
        groups = gated.parameter_groups()
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        if trained:
            groups = [{"params": trained, "lr": learning_rate}, *groups]
        optimizer = torch.optim.AdamW(groups, weight_decay=0.0)
        decay = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / steps)
        order = torch.Generator().manual_seed(seed)
        for step in range(steps):
            batch = torch.randint(EXAMPLES, (BATCH,), generator=order)
            gated.begin_step(step, steps)
            error = model(input_ids=ids[batch]).logits - targets[batch]
            loss = error.pow(2).mean() + gated.penalty()
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(list(pruner.parameters()), 1.0)
            optimizer.step()
            decay.step()
    return pruner.mask(), mask
