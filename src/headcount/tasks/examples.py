"""Labelled texts from tables: find the columns, the labels and the rows to use."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from headcount.errors import HeadcountError
from headcount.tasks.tables import Table, as_texts, named

# Column names that data sets use. Pairs come before single texts: a table may have both.
TEXTS: tuple[tuple[str, ...], ...] = (
    ("sentence1", "sentence2"), ("premise", "hypothesis"), ("question1", "question2"),
    ("#1 string", "#2 string"), ("text1", "text2"), ("text_a", "text_b"), ("question", "sentence"),
    ("question", "answer"), ("question", "passage"), ("question", "context"), ("query", "passage"),
    ("query", "document"), ("text",), ("sentence",), ("review",), ("content",), ("document",),
    ("comment",), ("tweet",), ("utterance",), ("body",), ("question",), ("title",),
)  # fmt: skip
LABELS = (
    "label", "gold_label", "labels", "class", "category", "target", "quality", "is_duplicate",
    "sentiment", "intent", "topic", "emotion", "score", "rating",
)  # fmt: skip

UNDECIDED = "-"  # SNLI and MNLI: the annotators did not agree
# In other data "-" may be an ordinary label, such as the opposite of "+".
_INFERENCE = {"entailment", "neutral", "contradiction", "not_entailment", "", UNDECIDED}
_PAIRS = {frozenset(names) for names in TEXTS if len(names) == 2}
_REPEATED = 4  # a column with few different values has each this often, on average


@dataclass(frozen=True)
class Examples:
    """Labelled texts.

    Attributes:
        source: where they come from, for messages.
        texts: one column of text, or two.
        labels: the label of every row, as written: a name, or a value in a regression.
        dropped: how many rows were left out because they are undecided or broken.
    """

    source: str
    texts: tuple[list[str], ...]
    labels: Sequence[str]
    dropped: int = 0

    def __len__(self) -> int:
        return len(self.labels)

    def select(self, rows: Sequence[int]) -> Examples:
        """Some of the rows, in this order."""
        texts = tuple([column[row] for row in rows] for column in self.texts)
        return replace(self, texts=texts, labels=[self.labels[row] for row in rows])


def labelled(table: Table, text: Sequence[str], label: str) -> Examples:
    """Take texts and labels out of a table.

    If the labels are those of inference, rows with the label "-" are dropped and counted.

    Args:
        table: the table.
        text: the columns with the text, one or two.
        label: the column with the label.

    Raises:
        HeadcountError: there are no such columns, or a row has no text or no label.
    """
    if len(text) > 2:
        raise HeadcountError(
            f"{len(text)} text columns were named ({', '.join(text)}), but a model reads one text "
            "or a pair; name one or two"
        )
    labels = as_texts([_whole(v) for v in table.column(label)], label, table.source, missing="")
    labels = [value.strip() for value in labels]
    undecided = UNDECIDED if {value.lower() for value in labels} <= _INFERENCE else None
    kept = [row for row, value in enumerate(labels) if value != undecided]
    missing = next((row for row in kept if not labels[row]), None)
    if missing is not None:
        raise HeadcountError(
            f"row {missing + 1} of {table.source} has no label; give it one, or leave the row out"
        )
    if not kept:
        raise HeadcountError(
            f"no row of {table.source} has a label, all {len(labels)} are '-'; give labelled data"
        )
    columns = tuple(table.texts(name) for name in text)
    dropped = len(labels) - len(kept) + table.broken
    return Examples(table.source, columns, labels, dropped).select(kept)


@dataclass(frozen=True)
class Columns:
    """The columns of a table to read.

    Attributes:
        text: those with the text, one or two.
        label: the one with the label.
        remark: what was assumed, for the user; None if names say it all.
    """

    text: tuple[str, ...]
    label: str
    remark: str | None = None

    @property
    def names(self) -> set[str]:
        """All of them."""
        return {*self.text, self.label}


def find_columns(table: Table, text: Sequence[str] = (), label: str | None = None) -> Columns:
    """The columns of a table with the text and the label.

    They are found by the names that data sets use. In a table with two columns, one is the label
    and the other the text, whatever their names are.

    Args:
        table: the table.
        text: the columns with the text, if they are known.
        label: the column with the label, if it is known.

    Raises:
        HeadcountError: it is unclear which columns these are.
    """
    both = list(table.columns)
    wrong = len(text) > 1 or not {*text, *([label] if label else [])} <= table.columns.keys()
    if len(both) != 2 or wrong or (text and label) or _plain(both) in _PAIRS:
        return Columns(tuple(text) or find_text(table), label or find_label(table))
    chosen = label or (_other(both, text[0]) if text else _label_of_two(table))
    first = _other(both, chosen)
    if label is None and chosen in map(str, table.columns[chosen]):
        raise HeadcountError(
            f"the first line of {table.source} ({named(both)}) looks like data, not like names of "
            "columns; put names above it, such as text and label"
        )
    if (text or (first.lower(),) in TEXTS) and (label or chosen.lower() in LABELS):
        return Columns((first,), chosen)
    remark = (
        f"{table.source} has two columns: {first!r} is taken for the text and "
        f"{chosen!r} for the label; --text and --label say otherwise"
    )
    return Columns((first,), chosen, remark)


def _label_of_two(table: Table) -> str:
    """The label of two columns: the one that is named like a label, or has few different values."""
    both = list(table.columns)
    found = [name for name in both if name.lower() in LABELS]
    if len(found) != 1:
        different = {name: len(set(map(str, table.columns[name]))) for name in both}
        found = [name for name in both if different[name] * _REPEATED <= len(table)]
    if len(found) != 1:
        raise HeadcountError(
            f"it is unclear which of the two columns of {table.source} is the label, "
            f"{' or '.join(both)}: {'both have' if found else 'neither has'} few different values; "
            "name it with --label"
        )
    return found[0]


def _other(both: Sequence[str], name: str) -> str:
    return both[1] if name == both[0] else both[0]


def _plain(names: Sequence[str]) -> frozenset[str]:
    return frozenset(name.lower() for name in names)


def find_text(table: Table) -> tuple[str, ...]:
    """The columns with the text, found by the names that data sets use."""
    there = {name.lower(): name for name in table.columns}
    for names in TEXTS:
        if all(name in there for name in names):
            return tuple(there[name] for name in names)
    raise HeadcountError(
        f"no column of {table.source} has a usual name for a text (text, sentence, sentence1 and "
        f"sentence2, …), there are {named(table.columns)}; name the text columns"
    )


def find_label(table: Table) -> str:
    """The column with the label, found by the names that data sets use."""
    there = {name.lower(): name for name in table.columns}
    for name in LABELS:
        if name in there:
            return there[name]
    raise HeadcountError(
        f"no column of {table.source} has a usual name for a label (label, class, category, …), "
        f"there are {named(table.columns)}; name the label column"
    )


def _whole(value: Any) -> Any:
    """A column with a missing label stores integers as floats; 1.0 is the label 1."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def label_names(*parts: Examples) -> tuple[str, ...]:
    """The labels that occur in some data, sorted; integers are sorted by value.

    Raises:
        HeadcountError: there is only one label, or there are too many to be labels.
    """
    source, rows = parts[0].source, sum(map(len, parts))
    found = sorted({label for examples in parts for label in examples.labels})
    if len(found) == 1:
        raise HeadcountError(
            f"all labels of {source} are {found[0]!r}; give data with at least two different labels"
        )
    if len(found) > max(20, rows // 2):
        raise HeadcountError(
            f"{source} has {len(found)} different labels in {rows} rows, such as "
            f"{reprlib.repr(found[0])}; name the column with the labels"
        )
    if all(_is_integer(name) for name in found):
        found.sort(key=int)
    return tuple(found)


def _is_integer(text: str) -> bool:
    # Python refuses to read a number of thousands of digits.
    return text.removeprefix("-").isdecimal() and len(text) < 100


def number_labels(examples: Examples, names: Sequence[str]) -> list[int]:
    """The number of every row's label: its position in `names`.

    Data may have the numbers already, from 0, instead of the names. They are used as positions
    unless the names are numbers too.

    Raises:
        HeadcountError: a label is not among the names.
    """
    numbers = {name: number for number, name in enumerate(names)}
    unknown = sorted(set(examples.labels) - numbers.keys())
    positions = {str(number): number for number in range(len(names))}
    are_names = not any(_is_integer(name) for name in names)
    if are_names and unknown and not set(examples.labels) - positions.keys():
        numbers, unknown = positions, []
    if unknown:
        worst = min(set(unknown) - positions.keys(), default=unknown[0])
        raise HeadcountError(
            f"{examples.source} has the label {reprlib.repr(worst)}, but the labels are "
            f"{named(names)}; mend the data, or name all the labels"
        )
    return [numbers[value] for value in examples.labels]


def number_values(examples: Examples) -> list[float]:
    """The value of every row's label in a regression."""
    return [_value(examples, row) for row in range(len(examples))]


def _value(examples: Examples, row: int) -> float:
    try:
        value = float(examples.labels[row])
    except ValueError:
        value = math.nan
    if not math.isfinite(value):  # the loss, and then the model, would be NaN
        raise HeadcountError(
            f"row {row + 1} of {examples.source} has the label "
            f"{reprlib.repr(examples.labels[row])} where a number is expected; mend the row"
        )
    return value
