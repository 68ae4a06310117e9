"""Language modelling: text in, perplexity out."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from datasets import Dataset
from torch import Tensor, stack
from torch.nn import functional as F
from transformers import (
    AutoModelForCausalLM,
    DataCollatorForSeq2Seq,
    EvalPrediction,
    PreTrainedModel,
)

from headcount.batch import evaluating
from headcount.errors import HeadcountError
from headcount.tasks import hub
from headcount.tasks.base import Collator, DataSettings, Processor, Task, read_options
from headcount.tasks.files import find_data, find_text, list_folder, read_text
from headcount.tasks.models import load_for, load_tokenizer
from headcount.tasks.prepared import cache_folder, draw, fingerprint, prepared

_VALIDATION = ("validation", "valid", "val", "dev", "eval", "test")
_PIECE = 10_000  # how many characters are tokenised at once, at least


@dataclass(frozen=True)
class LanguageModellingOptions:
    """The options of language modelling.

    Attributes:
        block_size: how many tokens a block has; 0 for `max_length`, or the tokenizer's own limit
            if that is smaller.
        config: the configuration of a data set on the hub; None for its only one.
    """

    block_size: int = 0
    config: str | None = None


class LanguageModelling(Task):
    """Text, a decoder-only model, perplexity.

    Data is a folder with files such as `train.txt` and `valid.txt` (plain or gzip), one such file
    with others named in `evaluate`, or a data set on the hub with a column of text. The whole text
    is tokenised and cut into blocks. `limit_train` and `limit_eval` are numbers of blocks.

    Training blocks do not overlap, and an incomplete last one is dropped. An evaluation block
    begins with the last token of the block before, and the last one may be short. So every token
    except the first is predicted exactly once.

    Perplexity is per token: only compare models with the same tokenizer and block size.

    Args:
        settings: which data, and how much of it; for `options` see `LanguageModellingOptions`.
    """

    name = "language-modelling"
    auto_class: ClassVar[str] = "AutoModelForCausalLM"
    metric = "perplexity"
    greater_is_better: ClassVar[bool] = False

    def __init__(self, settings: DataSettings) -> None:
        super().__init__(settings)
        self.options = read_options(LanguageModellingOptions(), settings.options, self.name)
        if self.options.block_size and self.options.block_size < 2:
            raise HeadcountError(
                f"blocks of {self.options.block_size} tokens have nothing to predict; "
                "give a block_size of at least 2"
            )
        self._texts = read_texts(settings, self.options.config)

    def load_processor(self, model: str) -> Processor:
        """The model's tokenizer. It pads on the right, so that positions start at 0."""
        tokenizer = load_tokenizer(model)
        tokenizer.padding_side = "right"
        return tokenizer

    def load_model(self, model: str, processor: Processor) -> PreTrainedModel:
        """The model, if it reads from left to right and can read a whole block."""
        loaded = load_for(AutoModelForCausalLM, model, self.name, whole=True)
        if sees_what_comes(loaded):
            raise HeadcountError(
                f"{model} is a {type(loaded).__name__} that sees the words it has to predict; give "
                "a model that reads from left to right"
            )
        size = self.block_size(processor)
        limit = getattr(loaded.config.get_text_config(), "max_position_embeddings", None)
        if isinstance(limit, int) and 0 < limit < size:
            raise HeadcountError(
                f"{model} reads at most {limit} tokens, but blocks have {size}; "
                f"give a block_size of {limit} or less"
            )
        return loaded

    def block_size(self, processor: Processor) -> int:
        """How many tokens a block has."""
        return self.options.block_size or min(self.settings.max_length, processor.model_max_length)

    def train_data(self, processor: Processor) -> Dataset:
        """Whole blocks within the limit."""
        tokens, size = self._tokens("train", processor), self.block_size(processor)
        starts = range(0, len(tokens) - size + 1, size)
        if not starts:
            raise HeadcountError(
                f"the training text has {len(tokens)} tokens, less than one block of {size}; "
                "give more text or a smaller block_size"
            )
        return self._blocks(tokens, starts, size, self.settings.limit_train)

    def evaluation_data(self, processor: Processor) -> dict[str, Dataset]:
        """Blocks that overlap by a token; only the last one may be short."""
        found, size = {}, self.block_size(processor)
        for split in list(self._texts)[1:]:
            tokens = self._tokens(split, processor)
            if len(tokens) < 2:
                raise HeadcountError(
                    f"the text of {split} has {len(tokens)} tokens, expected at least 2; "
                    "give more text"
                )
            starts = range(0, len(tokens) - 1, size - 1)
            found[split] = self._blocks(tokens, starts, size, self.settings.limit_eval)
        return found

    def collator(self, processor: Processor, model: PreTrainedModel) -> Collator:
        """A function that pads a short block, and its labels with -100."""
        return DataCollatorForSeq2Seq(processor, label_pad_token_id=-100)

    def reduce(self, logits: Any, labels: Tensor) -> Tensor:
        """For each block, the sum of the negative log-likelihood and the number of tokens.

        The logits of a whole evaluation set would not fit into memory.
        """
        scores: Tensor = logits[0] if isinstance(logits, tuple) else logits
        rows = []
        for row, label in zip(scores[:, :-1], labels[:, 1:], strict=True):
            loss = F.cross_entropy(row.float(), label, ignore_index=-100, reduction="sum")
            rows.append(stack([loss, (label != -100).sum().to(loss.dtype)]))
        return stack(rows)

    def predictions(
        self, output: EvalPrediction, processor: Processor, split: str
    ) -> Sequence[float]:
        """The sum of the negative log-likelihood of each block."""
        return [float(loss) for loss in np.asarray(output.predictions)[:, 0]]

    def scores(self, output: EvalPrediction, processor: Processor, split: str) -> dict[str, float]:
        """The perplexity, the mean loss (its logarithm), and the number of tokens."""
        losses, tokens = np.asarray(output.predictions, dtype=np.float64).sum(axis=0)
        loss = float(losses / tokens)
        perplexity = math.exp(loss) if loss < 700 else math.inf
        return {"perplexity": perplexity, "loss": loss, "tokens": float(tokens)}

    def signature(self, split: str) -> str:
        """The data and the block size, which limits the context of a token."""
        size = self.options.block_size or f"<={self.settings.max_length}"
        return f"data:{Path(self.settings.data).name}-{split}|perplexity:per-token|block:{size}"

    def read_columns(self) -> dict[str, Sequence[str]]:
        """The text of every set."""
        return {split: [text] for split, text in self._texts.items()}

    def _tokens(self, split: str, processor: Processor) -> np.ndarray[Any, np.dtype[np.int64]]:
        def tokenise(batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
            found = processor(batch["text"], add_special_tokens=False, verbose=False)
            return {"input_ids": found["input_ids"]}

        pieces = list(_pieces(self._texts[split]))
        depends_on = [fingerprint(processor), "no special tokens"]
        data = prepared({"text": pieces}, tokenise, depends_on, cache_folder(self.settings))
        return np.concatenate([np.asarray(ids, dtype=np.int64) for ids in data["input_ids"]])

    def _blocks(self, tokens: Any, starts: range, size: int, limit: int | None) -> Dataset:
        rows = draw(len(starts), limit, self.settings.seed)
        blocks = [tokens[starts[row] : starts[row] + size].tolist() for row in rows]
        return Dataset.from_dict(
            {
                "input_ids": blocks,
                "attention_mask": [[1] * len(block) for block in blocks],
                "labels": blocks,
                "length": [len(block) for block in blocks],
            }
        )


def read_texts(settings: DataSettings, config: str | None = None) -> dict[str, str]:
    """The text of the training set, called `train`, and of every evaluation set.

    Raises:
        HeadcountError: a text is missing, empty or damaged.
    """
    path = find_data(settings.data, (".txt",))
    if path is None:
        return _read_hub(settings, config)
    folder = path if path.is_dir() else path.parent
    train = settings.train or ("" if path.is_dir() else path.name)
    texts = {"train": _read(folder, train, ("train",))}
    for name in settings.evaluate or ("",):
        found = _read(folder, name, _VALIDATION)
        texts[_short(name) if name else "validation"] = found
    return texts


def _read(folder: Path, name: str, usual: tuple[str, ...]) -> str:
    if name:
        path = find_text(folder, name) or find_text(folder, f"{name}.txt")
    else:
        path = _by_name(folder, usual)
    if path is None:
        present = [p.name for p in list_folder(folder) if p.is_file()]
        raise HeadcountError(
            f"{folder} has no text {name or usual[0]}.txt or {name or usual[0]}.txt.gz; it has "
            f"{', '.join(present[:8]) or 'no files'}: name files as train and evaluate"
        )
    return read_text(path)


def _by_name(folder: Path, usual: tuple[str, ...]) -> Path | None:
    """The only file with one of these words in its name, such as `wiki.train.tokens`."""
    for word in usual:
        pattern = re.compile(rf"(^|[._-]){word}([._-]|$)")
        found = [p for p in list_folder(folder) if p.is_file() and pattern.search(p.name)]
        if len(found) > 1:
            raise HeadcountError(
                f"{folder} has several files for {word}: {found[0].name}, {found[1].name}; "
                "name files as train and evaluate"
            )
        if found:
            return found[0]
    return None


def _read_hub(settings: DataSettings, config: str | None) -> dict[str, str]:
    parts = hub.load(settings.data, config)
    texts = {}
    for name, read in hub.chosen(parts, settings, _VALIDATION).items():
        rows = read().texts(settings.text[0] if settings.text else "text", missing="")
        texts[name] = "\n".join(row.rstrip("\n") for row in rows)
    if len(texts) == 1:
        raise HeadcountError(f"{settings.data} has no validation part; name one in evaluate")
    return texts


def _pieces(text: str) -> Iterator[str]:
    """Pieces of a text that a tokenizer like GPT-2's splits as it would split the whole text.

    A piece ends after a newline that a word follows. So no word and no white space is cut.
    """
    start = 0
    for end in re.finditer(r"\n(?=\S)", text):
        if end.end() - start >= _PIECE:
            yield text[start : end.end()]
            start = end.end()
    yield text[start:]


def _short(name: str) -> str:
    return Path(name).name.removesuffix(".gz").removesuffix(".txt")


def sees_what_comes(model: PreTrainedModel) -> bool:
    """Whether a token changes the model's output before it, as in a bidirectional encoder."""
    ids = torch.tensor([[5, 6, 7, 8], [5, 6, 7, 9]], device=model.device)
    embeddings: Any = model.get_input_embeddings()
    ids %= embeddings.weight.shape[0]
    with torch.no_grad(), evaluating(model):
        one, other = model(input_ids=ids).logits[:, 0].float()
    return not torch.allclose(one, other, rtol=1e-4, atol=1e-4)
