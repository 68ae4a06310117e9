"""Classify texts, or pairs of texts: the tasks of GLUE, and your own tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from transformers import DataCollatorWithPadding, EvalPrediction, PreTrainedModel

from headcount.errors import HeadcountError
from headcount.tasks.base import Collator, DataSettings, Prediction, Processor, Task, read_options
from headcount.tasks.examples import (
    Columns,
    Examples,
    find_columns,
    label_names,
    labelled,
    number_labels,
    number_values,
)
from headcount.tasks.glue import GLUE, read_glue
from headcount.tasks.metrics import score
from headcount.tasks.models import is_fine_tuned, load_classifier, load_tokenizer
from headcount.tasks.prepared import (
    Batch,
    cache_folder,
    draw,
    fingerprint,
    longest_first,
    prepared,
    with_columns,
)
from headcount.tasks.splits import open_splits
from headcount.tasks.tables import Table

if TYPE_CHECKING:
    from datasets import Dataset


@dataclass(frozen=True)
class TableOptions:
    """The options of classification.

    Attributes:
        config: the configuration of a data set on the hub; None for its only one.
    """

    config: str | None = None


class TextClassification(Task):
    """Texts with labels, or with values if `labels` is empty.

    A model may have its labels in another order than the data. Load the model first and then ask
    for data, which has the labels in the model's order.

    Args:
        settings: which data, and how much of it.
        train: the training examples; None if there are only examples to evaluate on.
        evaluation: the evaluation sets by name; tune on the first.
        labels: names of the labels, in the order of the data; empty for a regression.
        metrics: names of all metrics; the last one decides.
        positive: the number of the label whose F1 is reported.
    """

    auto_class = "AutoModelForSequenceClassification"

    def __init__(
        self,
        settings: DataSettings,
        train: Examples | None,
        evaluation: dict[str, Examples],
        labels: tuple[str, ...],
        metrics: tuple[str, ...],
        positive: int = 1,
    ) -> None:
        super().__init__(settings)
        self.train, self.evaluation = train, evaluation
        self.labels, self.metrics, self.positive = labels, metrics, positive
        self.metric = metrics[-1]
        self._order = list(range(len(labels) or 1))
        self._asked_for_data = False
        first = next(iter(self._parts.values()))
        for examples in self._parts.values():
            self._numbers(examples)  # refuse an unknown label before anything is loaded
            if len(examples.texts) != len(first.texts):
                raise HeadcountError(
                    f"{examples.source} has {len(examples.texts)} text columns, but {first.source} "
                    f"has {len(first.texts)}; name the text columns of both"
                )

    @property
    def _parts(self) -> dict[str, Examples]:
        """All examples that were read: those to train on first, if there are any."""
        return {**({} if self.train is None else {"train": self.train}), **self.evaluation}

    @property
    def dropped(self) -> dict[str, int]:
        """How many rows of every part were left out because they are broken or undecided."""
        return {name: examples.dropped for name, examples in self._parts.items()}

    def read_columns(self) -> dict[str, Sequence[str]]:
        """The texts and labels of every part."""
        columns: dict[str, Sequence[str]] = {}
        for name, examples in self._parts.items():
            columns |= {f"{name} {place}": text for place, text in enumerate(examples.texts)}
            columns[f"{name} label"] = examples.labels
        return columns

    def load_processor(self, model: str) -> Processor:
        """The tokenizer of a model folder or hub name."""
        return load_tokenizer(model)

    def load_model(self, model: str, processor: Processor) -> PreTrainedModel:
        """The model with its own classifier if that has these labels, or with a fresh one."""
        loaded, order = load_classifier(model, processor, self.labels, self.max_length)
        if self._asked_for_data and order != self._order:
            raise HeadcountError(
                f"{model} has its labels in another order than the data that was prepared before; "
                "load the model first, or make another task"
            )
        self._order = order
        return loaded

    def is_trained(self, model: PreTrainedModel) -> bool:
        """Whether the model came with a classifier for these labels."""
        return is_fine_tuned(model)

    def train_data(self, processor: Processor) -> Dataset:
        """Tokenised training examples within the limit."""
        if self.train is None:
            raise HeadcountError(
                f"{self.settings.data_name} has no examples to train on; name a file for training"
            )
        return self._prepared(self.train, self.settings.limit_train, processor)

    def evaluation_data(self, processor: Processor) -> dict[str, Dataset]:
        """Tokenised examples of every evaluation set, longest first."""
        return {
            name: longest_first(self._prepared(examples, self.settings.limit_eval, processor))
            for name, examples in self.evaluation.items()
        }

    def collator(self, processor: Processor, model: PreTrainedModel) -> Collator:
        """A function that pads a batch to its longest example."""
        collator: Collator = DataCollatorWithPadding(processor)
        return collator

    def predictions(
        self, output: EvalPrediction, processor: Processor, split: str
    ) -> Sequence[Prediction]:
        """The names of the predicted labels, or the predicted values."""
        predicted = self._predicted(output)
        if not self.labels:
            return [float(value) for value in predicted]
        return [self.labels[self._order[place]] for place in predicted]

    def gold(self, output: EvalPrediction, split: str) -> Sequence[Prediction]:
        """The names of the labels, or the values."""
        if not self.labels:
            return [float(value) for value in np.asarray(output.label_ids).reshape(-1)]
        return [self.labels[self._order[place]] for place in np.asarray(output.label_ids)]

    def scores(self, output: EvalPrediction, processor: Processor, split: str) -> dict[str, float]:
        """All metrics of an evaluation set; the last one decides."""
        positive = self._order.index(self.positive) if "f1" in self.metrics else 1
        return score(self.metrics, self._predicted(output), output.label_ids, positive)

    def _predicted(self, output: EvalPrediction) -> Any:
        logits = output.predictions
        logits = np.asarray(logits[0] if isinstance(logits, tuple) else logits)
        return logits.argmax(-1) if self.labels else logits.reshape(-1)

    def _numbers(self, examples: Examples) -> list[int] | list[float]:
        if not self.labels:
            return number_values(examples)
        places = {number: place for place, number in enumerate(self._order)}
        return [places[number] for number in number_labels(examples, self.labels)]

    def _prepared(self, examples: Examples, limit: int | None, processor: Processor) -> Dataset:
        self._asked_for_data = True
        rows = draw(len(examples), limit, self.settings.seed)
        examples = examples.select(rows)
        length = self.max_length
        names = ("first", "second")[: len(examples.texts)]

        def tokenise(batch: Batch) -> Batch:
            texts = [list(batch[name]) for name in names]
            # The collator pads each batch and makes the mask.
            made = processor(
                *texts, truncation=True, max_length=length, return_attention_mask=False
            )
            return dict(made)

        data = prepared(
            dict(zip(names, examples.texts, strict=True)),
            tokenise,
            (fingerprint(processor), str(length)),
            cache_folder(self.settings),
        )
        return with_columns(data, {"labels": self._numbers(examples), "row": rows})


class GlueTask(TextClassification):
    """A task of GLUE.

    Args:
        name: its name on the hub, such as `mnli`.
        settings: which data, and how much of it.
    """

    def __init__(self, name: str, settings: DataSettings) -> None:
        row = GLUE[name]
        self.name = name
        train, evaluation = read_glue(row, settings)
        super().__init__(settings, train, evaluation, row.labels, row.metrics, row.positive)


class Classification(TextClassification):
    """Any table with a text, or a pair of texts, and a label.

    If the settings name no labels, they are those of the training data, sorted; integers are
    sorted by value. Where only evaluation is asked for, there may be no training data; then the
    labels are those of the data to evaluate on.

    Args:
        settings: which data, and how much of it; for `options` see `TableOptions`.
    """

    name = "classification"

    def __init__(self, settings: DataSettings) -> None:
        options = read_options(TableOptions(), settings.options, "classification")
        splits = open_splits(settings.data, config=options.config)
        part = settings.train or splits.find("train", "training")
        if part is None and len(splits.readers) == 1:
            (part,) = splits.readers
        found = splits.find("validation", "valid", "val", "dev", "eval", "evaluation")
        chosen = settings.evaluate or ((found,) if found and found != part else ())
        no_part = part is None and not settings.evaluate_only
        if no_part or not chosen:
            what = "for training" if no_part else "for evaluation"
            raise splits.missing(f"data {what} was", f"name the file {what}")
        table = None if part is None else splits.read(part)[1]
        tables = splits.read_evaluation(chosen)
        first = next(iter(tables.values())) if table is None else table
        self._columns = find_columns(first, settings.text, settings.label)
        train = None if table is None else _examples(table, self._columns, settings)
        evaluation = {k: _examples(other, self._columns, settings) for k, other in tables.items()}
        metrics = ("macro_f1", "matthews_correlation", "accuracy")
        named_after = evaluation.values() if train is None else [train]
        labels = settings.labels or label_names(*named_after)
        super().__init__(settings, train, evaluation, labels, metrics)

    @property
    def remarks(self) -> tuple[str, ...]:
        """Also which columns were taken, if their names do not tell it."""
        return (*super().remarks, *([self._columns.remark] if self._columns.remark else []))

    def signature(self, split: str) -> str:
        """The name of the data's folder or file, and the evaluation set."""
        return f"data:{self.settings.data_name}-{split}"


def _examples(table: Table, first: Columns, settings: DataSettings) -> Examples:
    """The examples of a table, from the columns of the first one if it has them.

    A small table for evaluation may not show by itself which column is the label.
    """
    known = first.names <= table.columns.keys()
    columns = first if known else find_columns(table, settings.text, settings.label)
    return labelled(table, columns.text, columns.label)
