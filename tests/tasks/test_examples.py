from __future__ import annotations

import math
from typing import Any

import pytest

from headcount.tasks.examples import (
    Examples,
    find_columns,
    find_label,
    find_text,
    label_names,
    labelled,
    number_labels,
    number_values,
)
from headcount.tasks.tables import Table
from tests.tasks.tiny_text import mistake


def table(**columns: list[Any]) -> Table:
    return Table("t.csv", columns)


def examples_of(one: Table) -> Examples:
    columns = find_columns(one)
    return labelled(one, columns.text, columns.label)


def labels(*values: str) -> Examples:
    return Examples("t.csv", (["text"] * len(values),), values)


@pytest.mark.parametrize(
    "columns, text, label",
    [
        (["index", "sentence1", "sentence2", "label1", "gold_label"], ("sentence1", "sentence2"),
         "gold_label"),
        (["premise", "hypothesis", "label"], ("premise", "hypothesis"), "label"),
        (["idx", "Text", "Category"], ("Text",), "Category"),
        (["question", "answer", "target"], ("question", "answer"), "target"),
        (["question", "class"], ("question",), "class"),
        (["text", "sentence1", "sentence2", "labels"], ("sentence1", "sentence2"), "labels"),
    ],
)  # fmt: skip
def test_usual_names_are_found(columns: list[str], text: tuple[str, ...], label: str) -> None:
    one = Table("t.csv", {name: [""] for name in columns})
    assert find_text(one) == text
    assert find_label(one) == label


def test_unusual_names_are_told() -> None:
    with mistake("no column of t.csv has a usual name for a text .* there are a, b, c; name"):
        find_columns(table(a=["x"], b=["y"], c=["z"]))
    with mistake("no column of t.csv has a usual name for a label .* there are text, b, c; name"):
        find_columns(table(text=["x"], b=["y"], c=["z"]))


MANY = [f"{number} words" for number in range(12)]
FEW = ["good", "bad", "bad"] * 4


@pytest.mark.parametrize(
    ("columns", "label", "said"),
    [
        ({"phrase": MANY, "tone": FEW}, "tone", True),
        ({"tone": FEW, "phrase": MANY}, "tone", True),
        ({"phrase": MANY, "Sentiment": MANY}, "Sentiment", True),  # by its name
        ({"text": MANY, "tone": FEW}, "tone", True),
        ({"text": MANY, "Label": FEW}, "Label", False),
        ({"category": MANY, "topic": FEW}, "topic", True),  # both are usual names of labels
        ({"line": MANY, "stars": [5, 1, 3] * 4}, "stars", True),
    ],
)
def test_of_two_columns_one_is_the_label(
    columns: dict[str, list[Any]], label: str, said: bool
) -> None:
    found = find_columns(Table("t.csv", columns))
    (text,) = columns.keys() - {label}
    assert (found.text, found.label) == ((text,), label)
    words = f"{text!r} is taken for the text and {label!r} for the label"
    assert (words in (found.remark or "")) == said


def test_of_two_columns_one_may_be_named() -> None:
    both = table(phrase=MANY, tone=MANY)
    for found in (find_columns(both, ("phrase",)), find_columns(both, label="tone")):
        assert (found.text, found.label) == (("phrase",), "tone")
        assert found.remark
    assert find_columns(both, ("phrase",), "tone").remark is None
    assert find_columns(table(phrase=MANY, label=FEW), ("phrase",)).remark is None


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"a": MANY, "b": MANY}, "unclear which of the two columns of t.csv is the label, a or b: "
         "neither has few different values; name it with --label"),
        ({"a": FEW, "b": FEW}, "both have few different values"),
        ({"a": ["x"], "b": ["y"]}, "neither has few"),
        ({"premise": ["once"] * 12, "hypothesis": MANY}, "has a usual name for a label"),
        ({"I loved it": MANY, "good": FEW}, "the first line of t.csv .I loved it, good. looks like "
         "data, not like names of columns; put names above it"),
        ({"a": MANY}, "usual name for a text"),
    ],
)  # fmt: skip
def test_two_columns_that_do_not_tell_are_refused(columns: dict[str, list[Any]], says: str) -> None:
    with mistake(says):
        find_columns(Table("t.csv", columns))


def test_columns_can_be_named() -> None:
    got = labelled(table(a=["x"], b=["y"], c=["z"], text=["?"]), ("b", "a"), "c")
    assert got.texts == (["y"], ["x"])
    assert got.labels == ["z"]
    with mistake("no column 'd', it has a, b"):
        labelled(table(a=["x"], b=["y"]), ("d",), "b")
    with mistake("3 text columns were named"):
        labelled(table(a=["x"]), ("a", "b", "c"), "a")


def test_undecided_rows_are_dropped_and_counted() -> None:
    said = ["neutral", "-", "Entailment"]
    got = examples_of(Table("t", {"text": ["x", "y", "z"], "label": said}, broken=2))
    assert got.texts == (["x", "z"],)
    assert got.labels == ["neutral", "Entailment"]
    assert got.dropped == 3


def test_a_minus_may_be_a_label() -> None:
    assert examples_of(table(text=["x", "y", "z"], label=["+", "-", "0"])).labels == ["+", "-", "0"]


@pytest.mark.parametrize("value", [None, "", " ", float("nan")])
def test_a_row_without_label_is_told(value: Any) -> None:
    with mistake("row 2 of t.csv has no label"):
        examples_of(table(text=["x", "y"], label=["a", value]))


def test_data_without_labels_is_told() -> None:
    with mistake("no row of t.csv has a label, all 2 are '-'"):
        examples_of(table(text=["x", "y"], label=["-", "-"]))


@pytest.mark.parametrize("value", [None, ["list"], {"a": "dict"}, math.nan, math.inf, b"bytes"])
def test_a_row_without_text_is_told(value: Any) -> None:
    with mistake("row 2 of t.csv has .* in the column 'text' where a text is expected"):
        examples_of(table(text=["x", value], label=["a", "b"]))


def test_names_are_sorted_and_integers_by_value() -> None:
    assert label_names(labels("b", "a", "b")) == ("a", "b")
    assert label_names(labels("10", "9", "-1", "10")) == ("-1", "9", "10")
    assert examples_of(table(text=["x", "y"], label=[1.0, 0])).labels == ["1", "0"]
    assert examples_of(table(text=["x", "y"], label=[True, False])).labels == ["True", "False"]


def test_one_label_and_too_many_are_told() -> None:
    with mistake("all labels of t.csv are 'a'; give"):
        label_names(labels("a", "a"))
    with mistake("30 different labels in 30 rows, such as '0.0'; name the column"):
        label_names(labels(*(f"{n / 7}" for n in range(30))))


def test_labels_are_numbered_by_name_or_by_position() -> None:
    assert number_labels(labels("b", "a"), ("a", "b")) == [1, 0]
    assert number_labels(labels("1", "0"), ("no", "yes")) == [1, 0]
    assert number_labels(labels("1", "0"), ("1", "0")) == [0, 1]
    with mistake("has the label '0', but the labels are 1, 2"):
        number_labels(labels("1", "0"), ("1", "2"))


def test_an_unknown_label_is_told() -> None:
    with mistake("t.csv has the label 'c', but the labels are a, b; mend"):
        number_labels(labels("a", "c"), ("a", "b"))
    with mistake("has the label '2'"):
        number_labels(labels("0", "2"), ("a", "b"))


def test_a_value_that_is_no_number_is_told() -> None:
    assert number_values(labels("1.5", "2")) == [1.5, 2.0]
    with mistake("row 2 of t.csv has the label 'high' where a number is expected"):
        number_values(labels("1.5", "high"))


@pytest.mark.parametrize("value", [math.inf, -math.inf, ["list"], {"a": "dict"}, b"bytes"])
def test_a_label_that_is_none_is_told(value: Any) -> None:
    with mistake("row 2 of t.csv has .* in the column 'label' where a text is expected"):
        examples_of(table(text=["x", "y"], label=["a", value]))


@pytest.mark.parametrize("value", ["nan", "inf", "-Infinity", "1e999"])
def test_a_value_must_be_finite(value: str) -> None:
    with mistake("row 2 of t.csv has the label .* where a number is expected"):
        number_values(labels("1.5", value))


def test_a_label_may_have_thousands_of_digits() -> None:
    assert label_names(labels("9" * 5000, "1")) == ("1", "9" * 5000)
    assert examples_of(table(text=["x", "y"], label=[10**400, 0])).labels == ["1" + "0" * 400, "0"]
