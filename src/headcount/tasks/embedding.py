"""Embedding: sentences in, vectors out that replace those of the unpruned encoder.

There are no labels. What a pruned encoder must keep is the vector of each sentence. Where people
have said how similar two sentences are, that is measured too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
from torch import Tensor
from transformers import DataCollatorWithPadding, EvalPrediction, PreTrainedModel

from headcount.errors import HeadcountError
from headcount.loading.folder import is_pruned
from headcount.loading.module_list import transformer_path
from headcount.tasks.base import Collator, DataSettings, Processor, Task, read_options
from headcount.tasks.metrics import spearman
from headcount.tasks.models import load_tokenizer
from headcount.tasks.prepared import (
    Batch,
    cache_folder,
    draw,
    fingerprint,
    prepared,
    with_columns,
)
from headcount.tasks.reference_vectors import reference_vectors
from headcount.tasks.sentence_encoder import load_sentence_encoder
from headcount.tasks.sentence_folder import Reading, at_hand, copy_beside, reading_of
from headcount.tasks.sentences import Sentences, read_sentences
from headcount.tasks.vectors import FEWEST, same_neighbours, same_similarities, unit

if TYPE_CHECKING:
    from datasets import Dataset


@dataclass(frozen=True)
class EmbeddingOptions:
    """The options of embedding.

    Attributes:
        pooling: how a bare encoder makes one vector of those of its tokens: mean, cls or max. None
            for an encoder of sentence-transformers, which says it.
        prompt: what is put before every sentence, as `query: `; None for the default prompt of a
            folder of sentence-transformers.
        reference: the encoder whose vectors are to be kept; None for the model itself. Give it to
            evaluate a model that was pruned before.
        columns: names of the columns of a file without a header, as `sentence1,sentence2,score`.
        config: the configuration of a data set on the hub; None for its only one.
    """

    pooling: str | None = None
    prompt: str | None = None
    reference: str | None = None
    columns: tuple[str, ...] = ()
    config: str | None = None


class Embedding(Task):
    """Sentences, an encoder with one vector for each, the cosine to the unpruned encoder's vector.

    Data are lines of text, or a column of a table, or pairs with scores; see `read_sentences`.
    Evaluated are the mean cosine to the vectors of the unpruned encoder, Spearman's correlation of
    the similarities of random pairs with theirs, and how many of the ten nearest neighbours of a
    sentence stay the same. With scores, also Spearman's correlation of cosines with them, which
    then decides.

    Args:
        settings: which data, and how much of it; for `options` see `EmbeddingOptions`.
    """

    name = "embedding"
    auto_class = "AutoModel"
    metric = "cosine"
    also: ClassVar[tuple[str, ...]] = (
        "spearman", "cosine", "similarities", "neighbours", "neighbours_in_old",
    )  # fmt: skip

    def __init__(self, settings: DataSettings) -> None:
        super().__init__(settings)
        self.options = read_options(EmbeddingOptions(), settings.options, self.name)
        self._read = read_sentences(settings, self.options.columns, self.options.config)
        train, sets = self._read.train, self._read.sets
        self._train = None if train is None else _drawn(train, settings.limit_train, settings.seed)
        self._sets = {
            name: _drawn(part, settings.limit_eval, settings.seed) for name, part in sets.items()
        }
        if all(part.scores for part in self._sets.values()):
            self.metric = "spearman"
        self._reference: str | None = self.options.reference or None
        self._vectors: Tensor | None = None
        self._size: int | None = None  # how many numbers a vector has
        self._reading: Reading | None = None
        self._gold: dict[str, Any] = {}  # scores of pairs, in the order of each evaluation set

    @property
    def _parts(self) -> list[Sentences]:
        """All sentences in one order, by which their vectors are numbered."""
        return [*([self._train] if self._train else []), *self._sets.values()]

    @property
    def remarks(self) -> tuple[str, ...]:
        """Whether sentences are held out, and what is not measured on few of them."""
        found = []
        if self._read.held_out and self._train is not None:
            (held,) = self._read.sets.values()
            found.append(
                f"there are no sentences to evaluate on: {len(held):,} of the training sentences "
                "are held out for that"
            )
        few = [name for name, part in self._sets.items() if len(part) < FEWEST]
        if few:
            found.append(
                f"neighbours are compared among {FEWEST} sentences or more, and {few[0]} has "
                f"{len(self._sets[few[0]])}: left out"
            )
        return tuple(found)

    def read_columns(self) -> Mapping[str, Sequence[str]]:
        """The sentences and scores of every part."""
        parts = {"train": self._read.train, **{f"set {k}": v for k, v in self._read.sets.items()}}
        there = {name: part for name, part in parts.items() if part is not None}
        columns: dict[str, Sequence[str]] = {name: part.texts for name, part in there.items()}
        scores = {f"{name} score": [str(x) for x in part.scores] for name, part in there.items()}
        return {**columns, **scores}

    @property
    def max_length(self) -> int:
        """The longest input in tokens: what is asked for, else what the encoder's folder says."""
        read = self._reading.longest if self._reading else super().max_length
        return self.settings.max_length or read

    def model_folder(self, model: str) -> str:
        """The model; it is also the one whose vectors are to be kept, unless another one is."""
        model = at_hand(model)
        if self._reference is None:
            if is_pruned(model):
                raise HeadcountError(
                    f"{model} was pruned before, so its own vectors are not those to keep; name "
                    "the unpruned encoder with --option reference=MODEL"
                )
            self._reference = model
        return model

    def load_processor(self, model: str) -> Processor:
        """The tokenizer of an encoder; a study's copy of the unpruned one has the same vectors."""
        self._reference = self._reference or model
        tokenizer = load_tokenizer(model)
        self._reading = reading_of(model, tokenizer, self.options.prompt)
        return tokenizer

    def load_model(self, model: str, processor: Processor) -> PreTrainedModel:
        """The encoder, with one vector per text."""
        return self._load(model)

    def save(self, model: PreTrainedModel, processor: Processor, folder: Path) -> None:
        """Write the encoder with everything that was in its folder, in the same places."""
        files: Path | None = cast(Any, model).files
        if files is None:
            super().save(model, processor, folder)
            return
        inner = folder / transformer_path(files)
        inner.mkdir(parents=True, exist_ok=True)
        super().save(model, processor, inner)
        copy_beside(files, folder)

    def train_data(self, processor: Processor) -> Dataset:
        """Tokenised sentences within the limit; the label is the place of the vector."""
        if self._train is None:
            raise HeadcountError(
                f"{self.settings.data_name} has no sentences to train or score on; name a "
                "file with --train"
            )
        return self._prepared(self._train, processor)

    def evaluation_data(self, processor: Processor) -> dict[str, Dataset]:
        """Tokenised sentences of every evaluation set, longest first; pairs stay together."""
        found = {}
        for name, sentences in self._sets.items():
            data = self._prepared(sentences, processor)
            step = 2 if sentences.scores else 1
            lengths = np.asarray(data["length"]).reshape(-1, step).max(-1)
            order = np.argsort(-lengths, kind="stable")
            self._gold[name] = np.asarray(sentences.scores)[order] if sentences.scores else None
            rows = (step * order[:, None] + np.arange(step)).reshape(-1)
            found[name] = data.select(rows)
        return found

    def half(self, split: str, data: Dataset, start: int, name: str) -> Dataset:
        """Every other sentence of an evaluation set, or every other pair."""
        gold = self._gold[split]
        self._gold[name] = None if gold is None else gold[start::2]
        if gold is None:
            return super().half(split, data, start, name)
        first = range(2 * start, len(data), 4)
        return data.select([row + place for row in first for place in (0, 1)])

    def get_ready(self, processor: Processor, tell: Callable[[int, int], None]) -> None:
        """Find the vectors of the unpruned encoder."""
        self._reference_vectors(processor, tell)

    def collator(self, processor: Processor, model: PreTrainedModel) -> Collator:
        """A function that pads a batch, and puts the vectors of the unpruned encoder into it."""
        pad = DataCollatorWithPadding(processor)
        vectors = self._reference_vectors(processor)

        def collate(examples: list[dict[str, Any]]) -> dict[str, Any]:
            batch: dict[str, Any] = dict(pad(examples))
            if "labels" in batch:
                batch["labels"] = vectors[batch["labels"]]
            return batch

        return collate

    def reduce(self, logits: Any, labels: Tensor) -> Tensor:
        """The vectors."""
        return logits[0] if isinstance(logits, tuple) else logits  # type: ignore[no-any-return]

    def predictions(
        self, output: EvalPrediction, processor: Processor, split: str
    ) -> Sequence[float]:
        """For each pair its cosine; without scores, for each sentence that to its old vector."""
        own, wanted = (unit(vectors) for vectors in _both(output))
        cosines = (own * wanted).sum(-1) if self._gold[split] is None else _of_pairs(own)
        return [float(value) for value in cosines]

    def gold(self, output: EvalPrediction, split: str) -> Sequence[float] | None:
        """How similar the sentences of each pair are; None if there are no scores."""
        gold = self._gold[split]
        return None if gold is None else [float(score) for score in gold]

    def scores(self, output: EvalPrediction, processor: Processor, split: str) -> dict[str, float]:
        """How close vectors, similarities and neighbours are to the unpruned encoder's."""
        own, wanted = (unit(vectors) for vectors in _both(output))
        found = {"cosine": float((own * wanted).sum(-1).mean())}
        if len(own) > 2:
            found["similarities"] = same_similarities(own, wanted)
        if len(own) >= FEWEST:
            found["neighbours"] = same_neighbours(own, own, wanted)
            found["neighbours_in_old"] = same_neighbours(own, wanted, wanted)
        if (gold := self._gold[split]) is not None:
            found["spearman"] = spearman(_of_pairs(own), gold)
        return found

    def signature(self, split: str) -> str:
        """The data, and what is compared."""
        return f"data:{self.settings.data_name}-{split}|{self.metric}:to-unpruned-vectors"

    def _prepared(self, part: Sentences, processor: Processor) -> Dataset:
        length = self.max_length

        def tokenise(batch: Batch) -> Batch:
            return dict(
                processor(
                    batch["text"], truncation=True, max_length=length, return_attention_mask=False
                )
            )

        depends_on = (fingerprint(processor), str(length))
        texts = {"text": self._texts(part)}
        data = prepared(texts, tokenise, depends_on, cache_folder(self.settings))
        first = self._first(part)
        return with_columns(data, {"labels": list(range(first, first + len(part)))})

    def _texts(self, part: Sentences) -> list[str]:
        assert self._reading is not None
        return [self._reading.text(sentence) for sentence in part.texts]

    def _first(self, part: Sentences) -> int:
        """The place of a part's first vector; those of all parts follow each other."""
        before = takewhile(lambda other: other is not part, self._parts)
        return sum(map(len, before))

    def _load(self, model: str) -> PreTrainedModel:
        assert self._reading is not None
        prompt = self._reading.prompt_tokens
        loaded = load_sentence_encoder(model, self.options.pooling, self.max_length, prompt)
        size = cast(Any, loaded).vector_size
        self._size = self._size or size
        if size != self._size:
            raise HeadcountError(
                f"{model} has vectors of {size} numbers, expected {self._size} as of the encoder "
                "that is pruned; give the encoder that it was made from as reference"
            )
        return loaded

    def _reference_vectors(
        self, processor: Processor, tell: Callable[[int, int], None] | None = None
    ) -> Tensor:
        if self._vectors is None:
            assert self._reference is not None
            model = self._load(self._reference)
            texts = [text for part in self._parts for text in self._texts(part)]
            cache = cache_folder(self.settings)
            self._vectors = reference_vectors(model, processor, texts, self.max_length, cache, tell)
        return self._vectors


def _drawn(part: Sentences, limit: int | None, seed: int) -> Sentences:
    return part.select(draw(part.examples, limit, seed))


def _of_pairs(vectors: Any) -> Any:
    """The cosine of the two of each pair, which follow each other."""
    return (vectors[0::2] * vectors[1::2]).sum(-1)


def _both(output: EvalPrediction) -> tuple[Any, Any]:
    """The vectors of the model, and those of the unpruned one."""
    said = output.predictions
    own = said[0] if isinstance(said, tuple) else said
    return np.asarray(own, dtype=np.float64), np.asarray(output.label_ids, dtype=np.float64)
