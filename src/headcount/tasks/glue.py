"""The tasks of GLUE: their files, columns, labels and metrics.

Each can be read in two layouts: GLUE's own TSV files, and the Parquet files of `nyu-mll/glue` on
the hub.
"""

from __future__ import annotations

from dataclasses import dataclass

from headcount.errors import HeadcountError
from headcount.tasks.base import DataSettings
from headcount.tasks.examples import Examples, labelled, number_labels
from headcount.tasks.metrics import COMBINED
from headcount.tasks.splits import Splits, open_splits
from headcount.tasks.tables import Table


@dataclass(frozen=True)
class Glue:
    """A task of GLUE.

    Attributes:
        name: the name on the hub and on the command line.
        text: for each layout, the columns with the text, one or two.
        label: for each layout, the column with the label.
        labels: the names of the labels in the order of their numbers; empty for a regression.
        metrics: all metrics that GLUE reports; the last one decides.
        evaluate: for each evaluation set, its names on the hub and in GLUE's files. Tune on the
            first set.
        header: the columns of files that have no header.
        positive: the number of the label whose F1 is reported.
        skip_broken: leave out rows with missing fields; the original file has a few of them.
    """

    name: str
    text: tuple[tuple[str, ...], ...]
    label: tuple[str, ...]
    labels: tuple[str, ...]
    metrics: tuple[str, ...] = ("accuracy",)
    evaluate: tuple[tuple[str, ...], ...] = (("validation", "dev"),)
    header: tuple[str, ...] = ()
    positive: int = 1
    skip_broken: bool = False


PAIR = ("sentence1", "sentence2")
ENTAILMENT = ("entailment", "not_entailment")
ACCURACY_AND_F1 = ("accuracy", "f1", COMBINED)

GLUE = {
    row.name: row
    for row in (
        Glue(
            "mnli",
            text=(PAIR, ("premise", "hypothesis")),
            label=("gold_label", "label"),
            labels=("entailment", "neutral", "contradiction"),
            evaluate=(
                ("validation_matched", "dev_matched"),
                ("validation_mismatched", "dev_mismatched"),
            ),
        ),
        Glue("sst2", text=(("sentence",),), label=("label",), labels=("negative", "positive")),
        Glue(
            "cola",
            text=(("sentence",),),
            label=("label",),
            labels=("unacceptable", "acceptable"),
            metrics=("matthews_correlation",),
            header=("source", "label", "mark", "sentence"),
        ),
        Glue(
            "mrpc",
            text=(("#1 String", "#2 String"), PAIR),
            label=("Quality", "label"),
            labels=("not_equivalent", "equivalent"),
            metrics=ACCURACY_AND_F1,
        ),
        Glue("rte", text=(PAIR,), label=("label",), labels=ENTAILMENT),
        Glue("qnli", text=(("question", "sentence"),), label=("label",), labels=ENTAILMENT),
        Glue(
            "qqp",
            text=(("question1", "question2"),),
            label=("is_duplicate", "label"),
            labels=("not_duplicate", "duplicate"),
            metrics=ACCURACY_AND_F1,
            skip_broken=True,
        ),
        Glue(
            "stsb",
            text=(PAIR,),
            label=("score", "label"),
            labels=(),
            metrics=("pearson", "spearman", COMBINED),
        ),
    )
}

# The Microsoft corpus behind MRPC. Its training file contains GLUE's dev.tsv, so it must only be
# evaluated on its own test file.
MICROSOFT = ("msr_paraphrase_train", "msr_paraphrase_test")


def read_glue(row: Glue, settings: DataSettings) -> tuple[Examples | None, dict[str, Examples]]:
    """The training examples of a GLUE task, and those of its evaluation sets by name.

    If only evaluation is asked for, there may be no training examples.

    Args:
        row: the row of the task in `GLUE`.
        settings: which data; `data` is GLUE's folder, the task's own, or a name on the hub.
    """
    if settings.labels:
        raise HeadcountError(
            f"{row.name} has its own labels ({', '.join(row.labels) or 'numbers'}), but others "
            "were named; leave them out, or use the task classification"
        )
    if settings.options:
        raise HeadcountError(
            f"{row.name} has no options, but {', '.join(settings.options)} was given; leave it "
            "out, or use the task classification"
        )
    splits = open_splits(
        settings.data,
        config=row.name,
        kinds={".txt": ".tsv"},
        names=row.header,
        skip_broken=row.skip_broken,
    )
    train, parts = _parts(row, splits, settings)
    if settings.evaluate:
        tables = splits.read_evaluation(settings.evaluate)
    else:
        tables = {name: splits.read(part)[1] for name, part in parts.items()}
    evaluation = {name: _examples(row, table, settings) for name, table in tables.items()}
    return _examples(row, splits.read(train)[1], settings) if train else None, evaluation


def _parts(row: Glue, splits: Splits, settings: DataSettings) -> tuple[str | None, dict[str, str]]:
    """The name of the training part, and the parts for evaluation by their names on the hub."""
    train = settings.train or splits.find("train")
    found = {names[0]: splits.find(*names) for names in row.evaluate}
    if train is None and set(MICROSOFT) <= splits.readers.keys():
        train, found = MICROSOFT[0], {"test": MICROSOFT[1]}
    parts = {name: part for name, part in found.items() if part}
    no_train = train is None and not settings.evaluate_only
    if no_train or not (parts or settings.evaluate):
        wanted = "train" if no_train else " or ".join(row.evaluate[0])
        if not splits.readers:
            raise splits.missing(f"{wanted} of {row.name} was", "name the file")
        raise HeadcountError(
            f"{splits.data} has no {wanted} of {row.name}, only "
            f"{', '.join(sorted(splits.readers))}; give the folder with GLUE's files for "
            f"{row.name}, or name the file"
        )
    return train, parts


def _examples(row: Glue, table: Table, settings: DataSettings) -> Examples:
    text = settings.text or next(
        (t for t in row.text if set(t) <= table.columns.keys()), row.text[0]
    )
    label = settings.label or next((n for n in row.label if n in table.columns), row.label[0])
    examples = labelled(table, text, label)
    if row.labels:
        # Numbers become names, so that both layouts give the same labels.
        names = [row.labels[number] for number in number_labels(examples, row.labels)]
        return Examples(examples.source, examples.texts, names, examples.dropped)
    return examples
