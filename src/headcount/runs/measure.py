"""Pruned models beside the unpruned one: are outputs the same, how large, how fast?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from headcount.batch import Batch
from headcount.bench.size import cache_bytes
from headcount.bench.speed import Job, side_by_side
from headcount.errors import HeadcountError
from headcount.gates import masked
from headcount.heads.mask import HeadMask
from headcount.runs.result import Sides

BATCHES = 3  # to time, spread over the lengths of the evaluation set
GENERATED = 16  # sentences to time the generation of
TOLERANCE = 1e-4  # for rounding over a whole evaluation set, relative to the logits
COMPARED = 16  # batches of the evaluation set to compare; of long texts, fewer
COMPARED_TOKENS = 4096
CACHED = 16  # tokens whose cache is counted; less than any sliding window
BUDGET = 3.0  # seconds for each figure and model


@dataclass(frozen=True)
class Measured:
    """Figures of two models.

    Attributes:
        parameters: the number of parameters.
        bytes: the size of the weights.
        examples_per_second: examples in a forward pass; None if not measured.
        generated_per_second: generated sentences; None for models that do not generate.
        tokens_per_second: tokens in a forward pass of a language model; None for others.
        cache_per_token: bytes that a language model keeps of each token; None for others.
    """

    parameters: Sides
    bytes: Sides
    examples_per_second: Sides | None
    generated_per_second: Sides | None
    tokens_per_second: Sides | None
    cache_per_token: Sides | None


def measure(
    whole: PreTrainedModel,
    pruned: Sequence[PreTrainedModel],
    batches: Sequence[Batch],
    generates: bool,
    speed: bool = True,
) -> list[Measured]:
    """Measure the unpruned model and pruned ones. All are timed in turn, the unpruned one once.

    Args:
        whole: the unpruned model.
        pruned: the pruned models.
        batches: the evaluation set, in its order; some of it is timed.
        generates: also time generation.
        speed: False measures sizes only.

    Returns:
        The figures of each pruned model beside the unpruned one.
    """
    models = (whole, *pruned)
    per_second: Sequence[Sides | None] = [None] * len(pruned)
    generated, tokens, cache = per_second, per_second, per_second
    writes = whole.can_generate() and not whole.config.is_encoder_decoder
    if writes and batches:
        cache = [_cache_per_token(whole, small, batches[0]) for small in pruned]
    if speed and batches:
        chosen = [batches[i * len(batches) // BATCHES] for i in range(min(BATCHES, len(batches)))]
        examples = sum(_size(batch) for batch in chosen)
        per_second = rates = _rates(examples, [_forward(model, chosen) for model in models])
        if writes:
            length = sum(_tokens(batch) for batch in chosen) / examples
            tokens = [Sides(length * rate.before, length * rate.after) for rate in rates]
        if generates:
            inputs = {
                name: value[:GENERATED]
                for name, value in batches[len(batches) // 2].items()
                if name in ("input_ids", "attention_mask")
            }
            jobs = [_generation(model, inputs) for model in models]
            generated = _rates(_size(inputs), jobs)
    return [
        Measured(
            Sides(_parameters(whole), _parameters(small)),
            Sides(weight_bytes(whole), weight_bytes(small)),
            *figures,
        )
        for small, *figures in zip(pruned, per_second, generated, tokens, cache, strict=True)
    ]


def _parameters(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def weight_bytes(model: nn.Module) -> int:
    """The size of all weights; tied ones count once, as on disk."""
    return sum(p.numel() * p.element_size() for p in model.parameters())


def _size(batch: Batch) -> int:
    return int(next(iter(batch.values())).shape[0])


def _tokens(batch: Mapping[str, Any]) -> int:
    """How many tokens a batch has; 0 for images."""
    ids = batch.get("input_ids")
    return ids.numel() if isinstance(ids, Tensor) else 0


def _cache_per_token(whole: PreTrainedModel, small: PreTrainedModel, batch: Batch) -> Sides | None:
    """Bytes of keys and values of each token; None for models that keep none, such as GPT."""
    ids: Tensor = batch["input_ids"][:1, :CACHED]
    try:
        before, after = (cache_bytes(model.eval(), {"input_ids": ids}) for model in (whole, small))
    except HeadcountError:
        return None
    return Sides(before / ids.numel(), after / ids.numel())


def _rates(examples: int, jobs: Sequence[Job]) -> list[Sides]:
    """Examples per second of the first job beside each of the others."""
    before, *after = side_by_side(jobs, budget=BUDGET * len(jobs))
    return [Sides(examples / before, examples / seconds) for seconds in after]


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
        # The same number of tokens for both, wherever they would end a sentence.
        model.generate(**inputs, num_beams=5, min_new_tokens=24, max_new_tokens=24)  # type: ignore[operator]

    return job


def checked_difference(
    whole: nn.Module, small: nn.Module, mask: HeadMask, batches: Sequence[Mapping[str, Any]]
) -> float:
    """How far the outputs of the cut model are from those of the masked one.

    Raises:
        HeadcountError: they differ by more than rounding.
    """
    difference = _largest_difference(whole, small, mask, _some_of(batches))
    if not difference < TOLERANCE:
        raise HeadcountError(
            f"the cut model differs from the masked one by {difference:.1e}, expected less "
            f"than {TOLERANCE:g}; nothing was written, please report this model"
        )
    return difference


def _some_of(batches: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """Batches of all lengths: a wrong cut shows on any."""
    longest = max((_tokens(batch) for batch in batches), default=0)
    number = min(max(COMPARED_TOKENS // max(longest, 1), 1), COMPARED)
    return batches[:: max(1, len(batches) // number)]


def _largest_difference(
    whole: nn.Module, small: nn.Module, mask: HeadMask, batches: Sequence[Mapping[str, Any]]
) -> float:
    """The largest difference of logits, relative to the largest logit where that is above 1."""
    largest = 0.0
    with torch.inference_mode(), masked(whole, mask):
        for batch in batches:
            expected, given = whole(**batch).logits, small(**batch).logits
            gap = (expected - given).abs()
            gap = torch.where(gap.isnan(), torch.inf, gap)  # a comparison with NaN would lose it
            largest = max(largest, float(gap.max()) / max(1.0, float(expected.abs().max())))
    return largest
