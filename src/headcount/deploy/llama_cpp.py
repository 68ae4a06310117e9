"""Does llama.cpp answer as the model? It runs in a process of its own; see `llama_cpp_run.py`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from headcount.deploy import llama_cpp_run
from headcount.deploy.gguf_tokenizer import Vocabulary
from headcount.deploy.other_process import ask
from headcount.errors import HeadcountError

# How much log-probabilities of a file in float32 may differ: on average, relative to one another
# (see `_gaps`), and all together. Correct files had at most 6e-6 and 1e-3, wrong ones 0.18 or more.
MEAN, OFFSET = 1e-4, 1e-2
TOP = 100  # how many of the next tokens are compared
LEAST = -50.0  # below that, probabilities are zeros in float32
STRIDE, STEPS = 9, 16
LONGEST = 96
# English with what tokenizers treat in their own ways: digits, contractions, other scripts, code.
TEXTS = (
    "The tower is 324 metres tall, about the same height as an 81-storey building. It was the "
    "first structure in the world to pass 300 metres, and it'd have been taller if they'd asked.",
    "Once upon a time there was a little girl who lived near the forest. She couldn't sleep.\n\n"
    '  "Where\'s my café?" she asked — naïve as ever… 你好, мир! 😀',
    "def area(radius):\n    # don't round\n\treturn 3.14159 * radius ** 2  \n\n"
    "print(area(10_000))\n",
)


@dataclass(frozen=True)
class Check:
    """What a comparison found.

    Attributes:
        difference: the largest difference of log-probabilities, relative to one another.
        mean: the mean difference.
        offset: the largest difference that all log-probabilities after some text share.
        equal: how many greedily chosen tokens are those that the model chooses.
        steps: how many there are.
    """

    difference: float
    mean: float
    offset: float
    equal: int
    steps: int


def compare(model: PreTrainedModel, words: Vocabulary, file: Path, exact: bool) -> Check:
    """Compare a GGUF file in llama.cpp with a model.

    Args:
        model: the model, with weights rounded as in the file.
        words: its vocabulary; texts must be the same tokens in llama.cpp.
        file: the file.
        exact: the file is in float32, so that only the order of sums is left to differ. In float16
            and 8 bits llama.cpp also rounds the input of every product. How much that changes
            depends on the model, so that no limit would tell a mistake from rounding.

    Raises:
        HeadcountError: llama.cpp cannot run the file, or answers something else.
    """
    room = min(LONGEST, model.config.max_position_embeddings - STEPS)
    texts = list(TEXTS) if words.tokenizer is not None else []
    expected = [words.tokens(text) for text in texts]
    prompts = [tokens[:room] for tokens in expected] or _numbers(model, room)
    answer = ask(
        llama_cpp_run.__file__,
        {
            "file": str(file),
            "texts": texts,
            "prompts": prompts,
            "stride": STRIDE,
            "steps": STEPS,
            "top": min(TOP, model.config.vocab_size),
            "context": LONGEST + STEPS + 16,
            "threads": torch.get_num_threads(),
            "whole": words.tokens("a")[-1] if texts else 0,
        },
        f"llama.cpp cannot run {file.name}",
    )
    for text, right, found in zip(texts, expected, answer["tokens"], strict=True):
        _refuse_other_tokens(file.name, text, right, found)
    found = _check(model, answer["asked"])
    too_far = not (found.mean <= MEAN and found.offset <= OFFSET)
    if (exact and too_far) or not math.isfinite(found.difference):
        raise HeadcountError(
            f"{file.name} answers something else in llama.cpp: log-probabilities differ from the "
            f"model's by {found.mean:.1e} on average and {found.difference:.1e} at most, expected "
            f"at most {MEAN:.0e} on average; export the model in another form"
        )
    return found


def _numbers(model: PreTrainedModel, room: int) -> list[list[int]]:
    """Prompts for a model without a tokenizer: tokens by their numbers."""
    generator = torch.Generator().manual_seed(0)
    made = torch.randint(model.config.vocab_size, (2, room), generator=generator)
    return [row.tolist() for row in made]


def _refuse_other_tokens(name: str, text: str, right: Sequence[int], found: Sequence[int]) -> None:
    if list(right) == list(found):
        return
    place = next((i for i, pair in enumerate(zip(right, found)) if pair[0] != pair[1]), -1)  # noqa: B905
    raise HeadcountError(
        f"{name} splits text into other tokens in llama.cpp: {text[:40]!r} has {len(right)} tokens "
        f"in its tokenizer and {len(found)} there, different from number {place}; export the model "
        "in another form"
    )


@torch.inference_mode()
def _check(model: PreTrainedModel, asked: Sequence[Sequence[tuple[list[int], Any]]]) -> Check:
    gaps, offsets = [], []
    equal = steps = 0
    for of_prompt in asked:
        longest = of_prompt[-1][0]
        logits = model(input_ids=torch.tensor([longest], device=model.device)).logits[0]
        expected = logits.float().log_softmax(-1).cpu()
        for number, (tokens, found) in enumerate(of_prompt):
            ids = torch.tensor([int(token) for token in found])
            given = torch.tensor(list(found.values()))
            right = expected[len(tokens) - 1]
            gap, offset = _gaps(right[ids], given)
            gaps.append(gap)
            offsets.append(offset)
            if number >= len(of_prompt) - STEPS - 1:
                steps += 1
                equal += int(ids[given.argmax()] == right.argmax())
    all_gaps = torch.cat(gaps)
    offset = torch.stack(offsets).max()
    return Check(float(all_gaps.max()), float(all_gaps.mean()), float(offset), equal, steps)


def _gaps(right: Tensor, found: Tensor) -> tuple[Tensor, Tensor]:
    """How much log-probabilities differ relative to one another, and how much all together.

    llama.cpp sums the probabilities of all tokens one after another in float32, so that all
    log-probabilities are off by the same number. It is larger than everything else that differs.
    """
    gap = (right - found)[right > LEAST]
    gap = torch.where(gap.isnan(), torch.inf, gap)
    offset = gap.median()
    return (gap - offset).abs().nan_to_num(torch.inf), offset.abs()
