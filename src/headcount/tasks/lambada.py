"""LAMBADA: predict the last word of a passage that only its whole context gives away.

Scored as `lambada_openai` of lm-evaluation-harness is. The context is all that comes before the
last space, and the target is that space with the last word.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from datasets import Dataset
from torch import Tensor, stack
from torch.nn import functional as F
from transformers import EvalPrediction

from headcount.errors import HeadcountError
from headcount.tasks.base import DataSettings, Processor, read_options
from headcount.tasks.causal import WINDOW, CausalTask
from headcount.tasks.prepared import cache_folder, draw, fingerprint, longest_first, prepared
from headcount.tasks.splits import open_splits
from headcount.tasks.windows import opening

_EVALUATION = ("test", "validation", "valid", "val", "dev", "eval")


@dataclass(frozen=True)
class LambadaOptions:
    """The options of LAMBADA.

    Attributes:
        config: the configuration of a data set on the hub; None for its only one.
    """

    config: str | None = None


class Lambada(CausalTask):
    """Passages, a decoder-only model, the accuracy of the last word.

    Data is a table with a column `text`, a passage in each row: a file of JSON lines, a folder with
    such a file, or `EleutherAI/lambada_openai` on the hub. There is nothing to train on.

    A word is right if each of its tokens is the most likely one after the right tokens before it.
    Perplexity is per word: e to the mean negative log-likelihood of the last words. A passage that
    the model cannot read loses its beginning.

    Args:
        settings: which data, and how much of it; for `options` see `LambadaOptions`.
    """

    name = "lambada"
    metric = "accuracy"
    greater_is_better: ClassVar[bool] = True

    def __init__(self, settings: DataSettings) -> None:
        super().__init__(settings)
        self.options = read_options(LambadaOptions(), settings.options, self.name)
        self._passages = _read(settings, self.options.config)

    @property
    def longest(self) -> int:
        """How many tokens a passage has at most."""
        return min(self.settings.max_length or WINDOW, self.limit or WINDOW)

    def examples_at_once(self, data: Dataset | None = None) -> int:
        """As many passages as have 2,048 tokens together, and 8 as long as they are not known."""
        return super().examples_at_once(data) if data is not None else 8

    def train_data(self, processor: Processor) -> Dataset:
        """Refused: the passages are for evaluation."""
        raise HeadcountError(
            "lambada has passages to evaluate on and none to train on; prune with the task "
            "language-modelling on other text, and then evaluate on lambada"
        )

    def evaluation_data(self, processor: Processor) -> dict[str, Dataset]:
        """The passages without their last token, longest first.

        The label of a token is the one after it if that belongs to the last word, and -100 if not.
        """
        first = opening(processor)

        def tokenise(batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
            made = [_encoded(text, processor, first) for text in batch["text"]]
            return {"input_ids": [ids for ids, _ in made], "known": [known for _, known in made]}

        found = {}
        for split, passages in self._passages.items():
            rows = draw(len(passages), self.settings.limit_eval, self.settings.seed)
            depends_on = [fingerprint(processor), "last words"]
            texts = {"text": [passages[row] for row in rows]}
            data = prepared(texts, tokenise, depends_on, cache_folder(self.settings))
            found[split] = longest_first(self._examples(data, split))
        return found

    def _examples(self, data: Dataset, split: str) -> Dataset:
        inputs, labels = [], []
        for ids, known in zip(data["input_ids"], data["known"], strict=True):
            if not 0 < known < len(ids):
                raise HeadcountError(
                    f"the set {split} has a passage whose last word cannot be told from the rest "
                    "by this tokenizer; give passages of two words or more"
                )
            cut = max(0, len(ids) - 1 - self.longest)
            if known <= cut:
                raise HeadcountError(
                    f"the last word of a passage of {split} has {len(ids) - known} tokens, too "
                    f"many for the {self.longest} that are read; give a greater max_length"
                )
            inputs.append(ids[cut:-1])
            labels.append([-100] * (known - cut - 1) + ids[known:])
        return Dataset.from_dict(
            {
                "input_ids": inputs,
                "attention_mask": [[1] * len(one) for one in inputs],
                "labels": labels,
                "length": [len(one) for one in inputs],
            }
        )

    def reduce(self, logits: Any, labels: Tensor) -> Tensor:
        """The negative log-likelihood of each passage's last word, and whether it is right."""
        scores: Tensor = logits[0] if isinstance(logits, tuple) else logits
        rows = []
        for row, label in zip(scores, labels, strict=True):
            target = label != -100
            said, right = row[target].float(), label[target]
            loss = F.cross_entropy(said, right, reduction="sum")
            rows.append(stack([loss, (said.argmax(-1) == right).all().to(loss.dtype)]))
        return stack(rows)

    def predictions(
        self, output: EvalPrediction, processor: Processor, split: str
    ) -> Sequence[int]:
        """For each passage, 1 if its last word is right and 0 if not."""
        return [int(right) for right in np.asarray(output.predictions)[:, 1]]

    def gold(self, output: EvalPrediction, split: str) -> Sequence[int]:
        """1 for each passage, so that two models can be compared passage by passage."""
        return [1] * len(np.asarray(output.predictions))

    def scores(self, output: EvalPrediction, processor: Processor, split: str) -> dict[str, float]:
        """The accuracy and the perplexity of the last word."""
        loss, right = np.asarray(output.predictions, dtype=np.float64).mean(axis=0)
        perplexity = math.exp(loss) if loss < 700 else math.inf
        return {"accuracy": float(right), "perplexity": perplexity}

    def signature(self, split: str) -> str:
        """The data, and how a word is judged."""
        return f"data:{self.settings.data_name}-{split}|accuracy:last-word-greedy"

    def read_columns(self) -> dict[str, Sequence[str]]:
        """The passages of every set."""
        return dict(self._passages)


def _encoded(text: str, processor: Processor, first: list[int]) -> tuple[list[int], int]:
    """The tokens of a passage, and how many of them belong to the context."""
    # White space at the end of the context goes to the target, as the harness has it.
    context = text.rpartition(" ")[0].rstrip()
    both = [
        processor(part, add_special_tokens=False, verbose=False)["input_ids"]
        for part in (context, text)
    ]
    return [*first, *both[1]], len(first) + len(both[0])


def _read(settings: DataSettings, config: str | None) -> dict[str, list[str]]:
    splits = open_splits(settings.data, config=config)
    names: Sequence[str] = settings.evaluate
    if not names:
        found = splits.find(*_EVALUATION) or (
            next(iter(splits.readers)) if len(splits.readers) == 1 else None
        )
        if found is None and not splits.readers:
            raise splits.missing("file to evaluate on was", "name one with --evaluate")
        if found is None:
            raise HeadcountError(
                f"{settings.data} has no part called test; it has {', '.join(splits.readers)}: "
                "name one in evaluate"
            )
        names = (found,)
    passages = {}
    for name in names:
        part, table = splits.read(name)
        passages[part] = table.texts(settings.text[0] if settings.text else "text")
        for row, text in enumerate(passages[part]):
            if not text.rpartition(" ")[0].strip() or text.endswith(" "):
                raise HeadcountError(
                    f"row {row + 1} of {table.source} has no last word after a space; give "
                    "passages of two words or more"
                )
    return passages
