"""Language modelling: text in, perplexity out, as papers on compression report it.

`texts.py` reads the text, `windows.py` makes windows of it. Here the losses of the windows become
one perplexity.
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
from transformers import (
    EvalPrediction,
    PreTrainedModel,
)

from headcount.errors import HeadcountError
from headcount.tasks.base import DataSettings, Processor, read_options
from headcount.tasks.causal import WINDOW, CausalTask
from headcount.tasks.prepared import cache_folder, draw, fingerprint, prepared
from headcount.tasks.texts import HELD_OUT, JOIN, held_out_line, read_texts
from headcount.tasks.windows import opening, pieces_of, tokens_and_bytes, windows_of

BLOCK = 512  # tokens of a training block: what a step remembers grows with it
CALIBRATION = 32_768  # tokens that scores and fits read, unless `limit_train` says how many
_WHOLE = 20_000_000  # characters of an evaluation text that is still tokenised in one piece
_ROWS = 256  # tokens whose logits are reduced at once
_Tokens = Any  # an array of whole numbers


@dataclass(frozen=True)
class LanguageModellingOptions:
    """The options of language modelling.

    Attributes:
        block_size: how many tokens a window or block has. 0 for `max_length`; if that is not given
            either, 2,048 for evaluation and 512 for training, or what the model reads if less.
        stride: tokens from one evaluation window to the next. 0 for windows that do not overlap. A
            smaller one than the window gives tokens more context, and takes longer.
        whole_windows: leave out a last window that is shorter, as the scripts of GPTQ and Wanda do.
        join: what is put between the rows of a table or a data set.
        config: the configuration of a data set on the hub; None for its only one.
    """

    block_size: int = 0
    stride: int = 0
    whole_windows: bool = False
    join: str = JOIN
    config: str | None = None


class LanguageModelling(CausalTask):
    """Text, a decoder-only model, perplexity.

    Data is a folder with files such as `train.txt` and `valid.txt`, one file, or a data set on the
    hub with a column of text; see `read_texts`. The whole text is tokenised. What the tokenizer
    puts before a text (a beginning-of-text token, or nothing) comes once, at the very start of an
    evaluation text. `limit_train` and `limit_eval` are numbers of blocks and windows.

    Evaluation windows do not overlap, and the last one may be short. In each, every token except
    the first is predicted, from those before it in the window. With a `stride`, windows overlap,
    and a window counts only the tokens that no window before it had. So each token counts at most
    once; the first token of the text never does.

    Perplexity is per token: only compare models with the same tokenizer, window and stride. Bits
    per byte can be compared between tokenizers: the loss of the counted tokens in bits, divided by
    the UTF-8 bytes of their text.

    Training blocks do not overlap, and an incomplete last one is dropped.

    Args:
        settings: which data, and how much of it; for `options` see `LanguageModellingOptions`.
    """

    name = "language-modelling"
    metric = "perplexity"
    greater_is_better: ClassVar[bool] = False
    also: ClassVar[tuple[str, ...]] = ("bits_per_byte",)

    def __init__(self, settings: DataSettings) -> None:
        super().__init__(settings)
        self.options = read_options(LanguageModellingOptions(), settings.options, self.name)
        size, stride = self.options.block_size, self.options.stride
        for name, tokens in (("block_size", size), ("max_length", settings.max_length or 0)):
            if tokens < 0 or tokens == 1:
                raise HeadcountError(
                    f"blocks of {tokens} tokens have nothing to predict; give a {name} of at least "
                    "2"
                )
        if stride < 0:
            raise HeadcountError(
                f"stride is {stride}, expected tokens from one window to the next; give at least 1"
            )
        self._texts = read_texts(settings, self.options.config, self.options.join)
        self._bytes: dict[str, int] = {}  # of the text that is counted, by evaluation set

    @property
    def remarks(self) -> tuple[str, ...]:
        """That part of the training text was held out, if it was."""
        if HELD_OUT not in self._texts:
            return ()
        return (held_out_line(self._texts["train"], self._texts[HELD_OUT]),)

    def load_model(self, model: str, processor: Processor) -> PreTrainedModel:
        """The model, if it reads from left to right and can read a whole window."""
        loaded = super().load_model(model, processor)
        limit = getattr(loaded.config.get_text_config(), "max_position_embeddings", None)
        size = max(self.window, self.block)
        if isinstance(limit, int) and 0 < limit < size:
            raise HeadcountError(
                f"{model} reads at most {limit} tokens, but blocks have {size}; "
                f"give a block_size of {limit} or less"
            )
        return loaded

    @property
    def window(self) -> int:
        """How many tokens an evaluation window has."""
        return self._size(WINDOW)

    @property
    def block(self) -> int:
        """How many tokens a training block has."""
        return self._size(BLOCK)

    @property
    def longest(self) -> int:
        """How many tokens an evaluation example has at most."""
        return self.window

    @property
    def calibrated_on(self) -> int | None:
        """Blocks of 32,768 tokens, or as many as `limit_train` says: a text may have millions."""
        return None if self.settings.limit_train else max(CALIBRATION // self.block, 1)

    def _size(self, usual: int) -> int:
        wanted = self.settings.max_length or usual
        return self.options.block_size or min(wanted, self.limit or wanted)

    def train_data(self, processor: Processor) -> Dataset:
        """Whole blocks within the limit."""
        if "train" not in self._texts:
            raise HeadcountError(
                f"{self.settings.data_name} has no training text, only text to evaluate on; name "
                "a file as train"
            )
        tokens, size = self._train_tokens(processor), self.block
        starts = range(0, len(tokens) - size + 1, size)
        if not starts:
            raise HeadcountError(
                f"the training text has {len(tokens)} tokens, less than one block of {size}; "
                "give more text or a smaller block_size"
            )
        rows = draw(len(starts), self.settings.limit_train, self.settings.seed)
        blocks = [tokens[starts[row] : starts[row] + size].tolist() for row in rows]
        return _examples(blocks, blocks)

    def evaluation_data(self, processor: Processor) -> dict[str, Dataset]:
        """The windows of every evaluation text; labels of tokens that do not count are -100."""
        found, size = {}, self.window
        stride = self.options.stride or size
        if stride > size:
            raise HeadcountError(
                f"stride is {stride}, which leaves out tokens between windows of {size}; give at "
                f"most {size}"
            )
        for split in self._texts:
            if split == "train":
                continue
            tokens, lengths = self._evaluation_tokens(split, processor)
            windows = windows_of(len(tokens), size, stride, self.options.whole_windows)
            if not windows:
                least = size if self.options.whole_windows else 2
                raise HeadcountError(
                    f"the text of {split} has {len(tokens)} tokens, expected at least {least}; "
                    "give more text"
                )
            rows = draw(len(windows), self.settings.limit_eval, self.settings.seed)
            drawn = [windows[row] for row in rows]
            self._bytes[split] = sum(int(lengths[w.counted : w.end].sum()) for w in drawn)
            inputs = [tokens[w.begin : w.end].tolist() for w in drawn]
            labels = [
                [-100] * (w.counted - w.begin) + tokens[w.counted : w.end].tolist() for w in drawn
            ]
            found[split] = _examples(inputs, labels)
        return found

    def reduce(self, logits: Any, labels: Tensor) -> Tensor:
        """For each window, the sum of the negative log-likelihood and the number of tokens.

        The logits of a whole evaluation set would not fit into memory.
        """
        scores: Tensor = logits[0] if isinstance(logits, tuple) else logits
        rows = []
        for row, label in zip(scores[:, :-1], labels[:, 1:], strict=True):
            parts = zip(row.split(_ROWS), label.split(_ROWS), strict=True)
            losses = [
                F.cross_entropy(part.float(), right, ignore_index=-100, reduction="sum")
                for part, right in parts
            ]
            loss = stack(losses).sum()
            rows.append(stack([loss, (label != -100).sum().to(loss.dtype)]))
        return stack(rows)

    def predictions(
        self, output: EvalPrediction, processor: Processor, split: str
    ) -> Sequence[float]:
        """The sum of the negative log-likelihood of each window."""
        return [float(loss) for loss in np.asarray(output.predictions)[:, 0]]

    def scores(self, output: EvalPrediction, processor: Processor, split: str) -> dict[str, float]:
        """The perplexity, bits per byte, the mean loss, and the number of counted tokens."""
        losses, tokens = np.asarray(output.predictions, dtype=np.float64).sum(axis=0)
        loss = float(losses / tokens)
        found = {"perplexity": math.exp(loss) if loss < 700 else math.inf}
        if self._bytes.get(split):
            found["bits_per_byte"] = float(losses) / math.log(2) / self._bytes[split]
        return {**found, "loss": loss, "tokens": float(tokens)}

    def signature(self, split: str) -> str:
        """The data, and the window and stride, which limit the context of a token."""
        parts = [f"data:{self.settings.data_name}-{split}", "perplexity:per-token"]
        parts += [f"window:{self.window}", f"stride:{self.options.stride or self.window}"]
        if self.options.join != JOIN:
            parts.append(f"join:{self.options.join!r}")
        return "|".join([*parts, *(["whole-windows"] if self.options.whole_windows else [])])

    def read_columns(self) -> dict[str, Sequence[str]]:
        """The text of every set."""
        return {split: [text] for split, text in self._texts.items()}

    def _train_tokens(self, processor: Processor) -> _Tokens:
        def tokenise(batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
            found = processor(batch["text"], add_special_tokens=False, verbose=False)
            return {"input_ids": found["input_ids"]}

        pieces = list(pieces_of(self._texts["train"]))
        depends_on = [fingerprint(processor), "no special tokens"]
        data = prepared({"text": pieces}, tokenise, depends_on, cache_folder(self.settings))
        return np.concatenate([np.asarray(ids, dtype=np.int64) for ids in data["input_ids"]])

    def _evaluation_tokens(self, split: str, processor: Processor) -> tuple[_Tokens, _Tokens]:
        """The tokens of a text, and of how many of its bytes each was made."""

        def tokenise(batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
            made = [tokens_and_bytes(text, processor) for text in batch["text"]]
            return {"input_ids": [ids for ids, _ in made], "bytes": [sizes for _, sizes in made]}

        text = self._texts[split]
        # A tokenizer that marks the beginning of a text would do so in every piece. So texts of the
        # usual size stay whole; one that is too large for that has a thousand windows and more.
        pieces = [text] if len(text) <= _WHOLE else list(pieces_of(text))
        depends_on = [fingerprint(processor), "no special tokens", "bytes"]
        data = prepared({"text": pieces}, tokenise, depends_on, cache_folder(self.settings))
        first = opening(processor)
        tokens = [first, *data["input_ids"]]
        lengths = [[0] * len(first), *data["bytes"]]
        return (
            np.concatenate([np.asarray(part, dtype=np.int64) for part in tokens]),
            np.concatenate([np.asarray(part, dtype=np.int64) for part in lengths]),
        )


def _examples(inputs: list[list[int]], labels: list[list[int]]) -> Dataset:
    return Dataset.from_dict(
        {
            "input_ids": inputs,
            "attention_mask": [[1] * len(one) for one in inputs],
            "labels": labels,
            "length": [len(one) for one in inputs],
        }
    )
