"""What the tests of methods that score in one pass share: their data, and plain transcriptions."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tests.pruners.test_surgeon import labelled
from tests.tiny import Family, Inputs

HEAD = 8  # the size of a head of the tiny models


def uneven(family: Family, batches: int = 3) -> list[Inputs]:
    """Labelled batches in which examples have different numbers of labels."""
    made = labelled(family, batches)
    for place, batch in enumerate(made):
        batch["labels"] = batch["labels"].clone()
        batch["labels"][0, : 1 + place] = -100
    return made


def in_one(batches: list[Inputs]) -> list[Inputs]:
    """The same examples in one batch."""
    return [{name: torch.cat([batch[name] for batch in batches]) for name in batches[0]}]


def one_by_one(batches: list[Inputs]) -> list[Inputs]:
    """The same examples, each in a batch of its own."""
    return [
        {name: tensor[i : i + 1] for name, tensor in batch.items()}
        for batch in batches
        for i in range(len(batch["labels"]))
    ]


def projections_of(name: str, model: Any) -> list[Any]:
    """The output projections of a tiny model, layer by layer."""
    if name == "bert":
        return [layer.attention.output.dense for layer in model.bert.encoder.layer]
    return [layer.self_attn.o_proj for layer in model.model.layers]


def tokens(model: Any, modules: list[Any], batches: list[Inputs]) -> list[Tensor]:
    """What goes into each of these modules of a model of one text, a row per token."""
    found: list[list[Tensor]] = [[] for _ in modules]
    for batch in batches:
        for place, module in enumerate(modules):
            there = batch["attention_mask"].bool()

            def hear(_: Any, args: Any, place: int = place, there: Tensor = there) -> None:
                found[place].append(args[0][there].double())

            module.hook = module.register_forward_pre_hook(hear)
        with torch.no_grad():
            model(**batch)
        for module in modules:
            module.hook.remove()
    return [torch.cat(rows) for rows in found]


def by_head(values: Tensor) -> Tensor:
    """The values of each head, from one per input."""
    return values.unflatten(0, (-1, HEAD))
