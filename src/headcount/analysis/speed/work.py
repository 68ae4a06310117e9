"""What a model is timed at: forward passes over some batches, or the generation of text.

The inputs are made up (`random_work`) or taken from a task (`task_work`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from datasets import Dataset
from transformers import PreTrainedModel

from headcount.batch import Batch, batch_size
from headcount.bench.made_up import random_batch, takes_images
from headcount.bench.speed import Job
from headcount.errors import HeadcountError
from headcount.runs.run import batches_of
from headcount.tasks.base import Collator

FORWARD, GREEDY = "forward", "greedy"
NEW_TOKENS = 24
SENTENCES = 4  # generated at a time
_BATCHES = 3  # taken from a task: long, middle and short examples


@dataclass(frozen=True)
class Work:
    """One thing to time.

    Attributes:
        name: `forward`, `greedy`, or the number of beams: `4 beams`.
        batch: examples per batch.
        length: mean length of the texts in tokens; None for images.
        batches: the inputs of the model.
        beams: number of beams to generate with; None for forward passes.
        tokens: tokens to generate for each example.
    """

    name: str
    batch: int
    length: int | None
    batches: tuple[Batch, ...]
    beams: int | None = None
    tokens: int = NEW_TOKENS

    @property
    def items(self) -> int:
        """How much is done: the number of examples, or of generated tokens."""
        examples = sum(batch_size(batch) for batch in self.batches)
        return examples if self.beams is None else examples * self.tokens

    def job(self, model: PreTrainedModel) -> Job:
        """A function that does the work once with this model."""
        model.eval()

        @torch.inference_mode()
        def job() -> None:
            for batch in self.batches:
                if self.beams is None:
                    model(**batch)
                else:  # the same number of tokens from every model, wherever it would stop
                    model.generate(  # type: ignore[operator]
                        **batch, num_beams=self.beams, do_sample=False, max_length=None,
                        min_new_tokens=self.tokens, max_new_tokens=self.tokens,
                    )  # fmt: skip

        return job


def random_work(
    model: PreTrainedModel, batch_sizes: Sequence[int], lengths: Sequence[int], beams: int
) -> list[Work]:
    """Made-up inputs of every batch size and length, and generation for a model that can.

    Args:
        model: the model, which decides what the inputs are.
        batch_sizes: batch sizes of the forward passes.
        lengths: lengths of the texts in tokens; not used for images.
        beams: number of beams to generate with, besides greedily; 0 leaves generation out.
    """
    sizes: Sequence[int | None] = (None,) if takes_images(model) else lengths
    work = [
        Work(FORWARD, batch, length, (random_batch(model, batch, length or 0),))
        for length in sizes
        for batch in batch_sizes
    ]
    if beams and model.can_generate():
        work += _generation(random_batch(model, SENTENCES, lengths[0]), beams)
    return work


def task_work(
    model: PreTrainedModel,
    data: Dataset,
    collator: Collator,
    batch_sizes: Sequence[int],
    beams: int,
) -> list[Work]:
    """Batches of a task's own evaluation set, with its lengths and its padding."""
    work = []
    for size in batch_sizes:
        if size > len(data):
            raise HeadcountError(
                f"a batch of {size} cannot be made of {len(data)} examples; give a smaller "
                "--batch-size or more data"
            )
        # The longest, the middle and the shortest examples; the set is sorted by length.
        starts = [i * (len(data) - size) // (_BATCHES - 1) for i in range(_BATCHES)]
        batches = tuple(
            batches_of(data.select(range(start, start + size)), size, model, collator)[0]
            for start in starts
        )
        work.append(Work(FORWARD, size, _length(batches), batches))
    if beams and model.can_generate():
        middle = data.select(range(len(data) // 2, min(len(data) // 2 + SENTENCES, len(data))))
        work += _generation(batches_of(middle, SENTENCES, model, collator)[0], beams)
    return work


def _generation(inputs: Batch, beams: int) -> list[Work]:
    prompt = {name: inputs[name] for name in ("input_ids", "attention_mask") if name in inputs}
    size, length = batch_size(prompt), _length((prompt,))
    names = {GREEDY: 1} if beams == 1 else {GREEDY: 1, f"{beams} beams": beams}
    return [Work(name, size, length, (prompt,), number) for name, number in names.items()]


def _length(batches: Sequence[Batch]) -> int | None:
    if "input_ids" not in batches[0]:
        return None
    return round(sum(int(batch["input_ids"].shape[1]) for batch in batches) / len(batches))
