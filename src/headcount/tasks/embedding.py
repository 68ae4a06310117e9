"""Embedding: sentences in, vectors out that stand in for those of the unpruned encoder.

There are no labels. What a pruned encoder must keep is the vector of each sentence. Where people
have said how alike two sentences are, that is measured as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from torch import Tensor
from transformers import DataCollatorWithPadding, EvalPrediction, PreTrainedModel

from headcount.errors import HeadcountError
from headcount.loading.folder import is_pruned
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
from headcount.tasks.sentence_encoder import load_sentence_encoder, longest_text
from headcount.tasks.sentences import Sentences, read_sentences

if TYPE_CHECKING:
    from datasets import Dataset

NEIGHBOURS = 10
_PAIRS = 20_000  # random pairs whose similarities are compared
_ROWS = 1024  # sentences whose neighbours are found at once


@dataclass(frozen=True)
class EmbeddingOptions:
    """The options of embedding.

    Attributes:
        pooling: how a bare encoder makes one vector of those of its tokens: mean, cls or max. None
            for an encoder of sentence-transformers, which says it.
        reference: the encoder whose vectors are to be kept; None for the model itself. Give it to
            evaluate a model that was pruned before.
        columns: names of the columns of a file without a header, as `sentence1,sentence2,score`.
        config: the configuration of a data set on the hub; None for its only one.
    """

    pooling: str | None = None
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
    label_free: ClassVar[bool] = True
    fitted_on: ClassVar[int] = 4096  # sentences are short
    also: ClassVar[tuple[str, ...]] = (
        "cosine", "similarities", "neighbours", "neighbours_in_old",
    )  # fmt: skip

    def __init__(self, settings: DataSettings) -> None:
        super().__init__(settings)
        self.options = read_options(EmbeddingOptions(), settings.options, self.name)
        self._read = read_sentences(settings, self.options.columns, self.options.config)
        self._drawn = {name: self._draw(name, part) for name, part in self._read.items()}
        if all(part.scores for name, part in self._drawn.items() if name != "train"):
            self.metric = "spearman"
        self._reference: str | None = self.options.reference
        self._vectors: Tensor | None = None
        self._longest: int | None = None
        self._gold: dict[str, Any] = {}  # scores of pairs, in the order of each evaluation set

    def _draw(self, name: str, part: Sentences) -> Sentences:
        limit = self.settings.limit_train if name == "train" else self.settings.limit_eval
        return part.select(draw(part.examples, limit, self.settings.seed))

    def read_columns(self) -> Mapping[str, Sequence[str]]:
        """The sentences and scores of every part."""
        columns: dict[str, Sequence[str]] = {name: s.texts for name, s in self._read.items()}
        scores = {f"{name} score": [str(x) for x in s.scores] for name, s in self._read.items()}
        return {**columns, **scores}

    @property
    def max_length(self) -> int:
        """The longest input in tokens: what is asked for, else what the encoder's folder says."""
        return self.settings.max_length or self._longest or super().max_length

    def model_folder(self, model: str) -> str:
        """The model; it is also the one whose vectors are to be kept, unless another one is."""
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
        self._longest = longest_text(model)
        return load_tokenizer(model)

    def load_model(self, model: str, processor: Processor) -> PreTrainedModel:
        """The encoder, with one vector per text."""
        return load_sentence_encoder(model, self.options.pooling)

    def train_data(self, processor: Processor) -> Dataset:
        """Tokenised sentences within the limit; the label is the place of the vector."""
        if "train" not in self._drawn:
            raise HeadcountError(
                f"{self.settings.data} has no sentences to train or score on; name a file with "
                "--train"
            )
        return self._prepared("train", processor)

    def evaluation_data(self, processor: Processor) -> dict[str, Dataset]:
        """Tokenised sentences of every evaluation set, longest first; pairs stay together."""
        found = {}
        for name, sentences in self._drawn.items():
            if name != "train":
                data = self._prepared(name, processor)
                step = 2 if sentences.scores else 1
                lengths = np.asarray(data["length"]).reshape(-1, step).max(-1)
                order = np.argsort(-lengths, kind="stable")
                self._gold[name] = np.asarray(sentences.scores)[order] if sentences.scores else None
                rows = (step * order[:, None] + np.arange(step)).reshape(-1)
                found[name] = data.select(rows)
        return found

    def part(self, split: str, data: Dataset, rows: Sequence[int], name: str) -> Dataset:
        """Every other example of an evaluation set, from the first of these rows on."""
        gold = self._gold[split]
        step = 1 if gold is None else 2
        chosen = range(rows[0], len(data) // step, 2)
        self._gold[name] = None if gold is None else gold[chosen]
        return data.select([step * row + place for row in chosen for place in range(step)])

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
        """For each sentence its cosine to the unpruned encoder's vector."""
        own, wanted = (_unit(vectors) for vectors in _both(output))
        return [float(value) for value in (own * wanted).sum(-1)]

    def scores(self, output: EvalPrediction, processor: Processor, split: str) -> dict[str, float]:
        """How close vectors, similarities and neighbours are to the unpruned encoder's."""
        own, wanted = (_unit(vectors) for vectors in _both(output))
        found = {
            "cosine": float((own * wanted).sum(-1).mean()),
            "similarities": _similarities(own, wanted),
            "neighbours": same_neighbours(own, own, wanted),
            "neighbours_in_old": same_neighbours(own, wanted, wanted),
        }
        if (gold := self._gold[split]) is not None:
            found["spearman"] = spearman((own[0::2] * own[1::2]).sum(-1), gold)
        return found

    def signature(self, split: str) -> str:
        """The data, and what is compared."""
        return f"data:{Path(self.settings.data).name}-{split}|{self.metric}:to-unpruned-vectors"

    def _prepared(self, name: str, processor: Processor) -> Dataset:
        texts, length = list(self._drawn[name].texts), self.max_length

        def tokenise(batch: Batch) -> Batch:
            return dict(
                processor(
                    batch["text"], truncation=True, max_length=length, return_attention_mask=False
                )
            )

        depends_on = (fingerprint(processor), str(length))
        data = prepared({"text": texts}, tokenise, depends_on, cache_folder(self.settings))
        first = self._first(name)
        return with_columns(data, {"labels": list(range(first, first + len(texts)))})

    def _first(self, name: str) -> int:
        """The place of a part's first vector; those of all parts follow each other."""
        parts = list(self._read)
        before = parts[: parts.index(name)]
        return sum(len(self._drawn[part]) for part in before)

    def _reference_vectors(self, processor: Processor) -> Tensor:
        if self._vectors is None:
            assert self._reference is not None
            model = load_sentence_encoder(self._reference, self.options.pooling)
            texts = [text for part in self._read for text in self._drawn[part].texts]
            cache = cache_folder(self.settings)
            self._vectors = reference_vectors(model, processor, texts, self.max_length, cache)
        return self._vectors


def _both(output: EvalPrediction) -> tuple[Any, Any]:
    """The vectors of the model, and those of the unpruned one."""
    said = output.predictions
    own = said[0] if isinstance(said, tuple) else said
    return np.asarray(own, dtype=np.float64), np.asarray(output.label_ids, dtype=np.float64)


def _unit(vectors: Any) -> Any:
    sizes = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.maximum(sizes, np.finfo(np.float64).tiny)


def _similarities(own: Any, wanted: Any) -> float:
    """Spearman's correlation of the similarities of random pairs; the same pairs every time."""
    draw_pairs = np.random.default_rng(0)
    one, other = draw_pairs.integers(0, len(own), (2, _PAIRS))
    different = one != other
    one, other = one[different], other[different]
    return spearman((own[one] * own[other]).sum(-1), (wanted[one] * wanted[other]).sum(-1))


def same_neighbours(own: Any, index: Any, wanted: Any, number: int = NEIGHBOURS) -> float:
    """How many of each sentence's nearest neighbours are those that the unpruned encoder finds.

    Args:
        own: vectors of length 1 to search with.
        index: the vectors that are searched: `own` again, or those of the unpruned encoder.
        wanted: the unpruned encoder's vectors, which it searches with and in.
        number: how many neighbours.
    """
    number = min(number, len(own) - 1)
    if number < 1:
        return 1.0
    same = 0
    for start in range(0, len(own), _ROWS):
        here = slice(start, start + _ROWS)
        found = _nearest(own[here], index, start, number)
        right = _nearest(wanted[here], wanted, start, number)
        same += sum(len(set(a) & set(b)) for a, b in zip(found, right, strict=True))
    return same / (number * len(own))


def _nearest(queries: Any, index: Any, start: int, number: int) -> Any:
    similar = queries @ index.T
    rows = np.arange(len(queries))
    similar[rows, start + rows] = -np.inf  # a sentence is not its own neighbour
    return np.argpartition(-similar, number - 1, axis=-1)[:, :number].tolist()
