"""Size and speed of a pruned model beside the unpruned one, at the task's own lengths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn
from transformers import PreTrainedModel

from headcount.bench.speed import Job, side_by_side
from headcount.pruners.michel import Batch
from headcount.runs.result import Sides

BATCHES = 3  # spread over the lengths of the evaluation set
GENERATED = 16  # sentences
BUDGET = 6.0  # seconds for each figure


@dataclass(frozen=True)
class Measured:
    """Figures of two models.

    Attributes:
        parameters: how many.
        bytes: of the weights.
        examples_per_second: in one forward pass.
        generated_per_second: sentences, for models that generate.
    """

    parameters: Sides
    bytes: Sides
    examples_per_second: Sides | None
    generated_per_second: Sides | None


def weight_bytes(model: nn.Module) -> int:
    """Of all weights; what is tied counts once, as on disk."""
    return sum(p.numel() * p.element_size() for p in model.parameters())


def measure(
    whole: PreTrainedModel,
    small: PreTrainedModel,
    batches: Sequence[Batch],
    generates: bool,
    speed: bool = True,
) -> Measured:
    """Measure both models.

    Args:
        whole: the unpruned model.
        small: the pruned one.
        batches: of the evaluation set.
        generates: also time generation.
        speed: False measures sizes only.
    """
    per_second = generated = None
    if speed and batches:
        chosen = [batches[i * len(batches) // BATCHES] for i in range(min(BATCHES, len(batches)))]
        examples = sum(_size(batch) for batch in chosen)
        per_second = _rates(examples, [_forward(model, chosen) for model in (whole, small)])
        if generates:
            inputs = {
                name: value[:GENERATED]
                for name, value in batches[len(batches) // 2].items()
                if name in ("input_ids", "attention_mask")
            }
            jobs = [_generation(model, inputs) for model in (whole, small)]
            generated = _rates(_size(inputs), jobs)
    return Measured(
        Sides(
            sum(p.numel() for p in whole.parameters()), sum(p.numel() for p in small.parameters())
        ),
        Sides(weight_bytes(whole), weight_bytes(small)),
        per_second,
        generated,
    )


def _size(batch: Batch) -> int:
    return int(next(iter(batch.values())).shape[0])


def _rates(examples: int, jobs: Sequence[Job]) -> Sides:
    before, after = side_by_side(jobs, budget=BUDGET)
    return Sides(examples / before, examples / after)


def _forward(model: PreTrainedModel, batches: Sequence[Batch]) -> Job:
    model.eval()

    @torch.inference_mode()
    def job() -> None:
        for batch in batches:
            model(**batch)

    return job


def _generation(model: PreTrainedModel, inputs: Batch) -> Job:
    model.eval()

    @torch.inference_mode()
    def job() -> None:
        # As many tokens for both, whenever they would end.
        model.generate(**inputs, num_beams=5, min_new_tokens=24, max_new_tokens=24)  # type: ignore[operator]

    return job
