"""Read sentences: lines of text, columns of a table, or pairs with a score of their similarity."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from headcount.errors import HeadcountError
from headcount.tasks.base import DataSettings
from headcount.tasks.examples import TEXTS
from headcount.tasks.splits import open_splits
from headcount.tasks.tables import LINE, LINES, Table, named
from headcount.tasks.texts import HELD_OUT

SCORES = ("score", "similarity", "similarity_score", "relatedness_score")
_EVALUATION = ("validation", "valid", "val", "dev", "eval", "evaluation", "test")
_SHARE = 10  # one sentence in this many is held out
_MOST = 2000  # but no more than this


@dataclass(frozen=True)
class Sentences:
    """Texts to embed.

    Attributes:
        source: where they come from, for messages.
        texts: the sentences. The two of a pair follow each other.
        scores: how similar the two of each pair are; empty if there are none.
    """

    source: str
    texts: Sequence[str]
    scores: Sequence[float] = ()

    def __len__(self) -> int:
        return len(self.texts)

    def select(self, rows: Sequence[int]) -> Sentences:
        """Some examples: pairs, if there are scores, else sentences."""
        if not self.scores:
            return Sentences(self.source, [self.texts[row] for row in rows])
        texts = [self.texts[2 * row + place] for row in rows for place in (0, 1)]
        return Sentences(self.source, texts, [self.scores[row] for row in rows])

    @property
    def examples(self) -> int:
        """How many examples: pairs, if there are scores, else sentences."""
        return len(self.scores) or len(self.texts)


@dataclass(frozen=True)
class SentenceData:
    """What was read.

    Attributes:
        train: sentences to train, score and fit on; None if there are none.
        sets: the evaluation sets.
        held_out: whether the evaluation set was taken from the training sentences.
    """

    train: Sentences | None
    sets: dict[str, Sentences]
    held_out: bool = False


def read_sentences(
    settings: DataSettings, columns: Sequence[str] = (), config: str | None = None
) -> SentenceData:
    """Read training sentences and evaluation sets.

    A `.txt` file has a sentence in every line. Of a table, the columns with text are read, and a
    score for evaluation if there are two such columns and one with numbers.

    If there are no sentences to evaluate on, a tenth of the others are held out, 2,000 at most. Of
    pairs with scores, pairs are held out with them.

    Args:
        settings: which data.
        columns: the names of the columns of a file without a header.
        config: the configuration of a data set on the hub; None for its only one.

    Raises:
        HeadcountError: sentences are missing, or a score is no number.
    """
    splits = open_splits(settings.data, config=config, kinds={".txt": LINES}, names=columns)
    part = settings.train or splits.find("train", "training")
    if part is None and len(splits.readers) == 1:
        (part,) = splits.readers
    chosen = settings.evaluate
    if not chosen and (found := splits.find(*_EVALUATION)) not in (None, part):
        chosen = (str(found),)
    sets = {
        name: sentences_of(table, settings, scored=True)
        for name, table in splits.read_evaluation(chosen).items()
    }
    if settings.evaluate_only and sets:
        return SentenceData(None, sets)
    if part is None:
        raise splits.missing("sentences were", "name a file with --train or --evaluate")
    name, table = splits.read(part)
    if settings.evaluate_only:
        return SentenceData(None, {name: sentences_of(table, settings, scored=True)})
    if sets:
        return SentenceData(sentences_of(table, settings, scored=False), sets)
    first, last = _held_out(sentences_of(table, settings, scored=True))
    return SentenceData(first, {HELD_OUT: last}, held_out=True)


def sentences_of(table: Table, settings: DataSettings, scored: bool) -> Sentences:
    """The sentences of a table, with the scores of its pairs if they are asked for and there."""
    lines = tuple(table.columns) == (LINE,)  # needs no names, and a table beside it may
    names = tuple(table.columns) if lines else settings.text or _text_columns(table)
    columns = [table.texts(name) for name in names]
    if scored and settings.label is not None and len(names) != 2:
        raise HeadcountError(
            f"{settings.label} cannot say how similar two sentences are: {table.source} has "
            f"{len(names)} column of sentences; name two with --text, or leave out --label"
        )
    score = settings.label or (_score_column(table) if len(names) == 2 else None)
    if scored and score is not None:
        pairs = [text for pair in zip(*columns, strict=True) for text in pair]
        return Sentences(table.source, pairs, _numbers(table, score))
    return _different(table.source, [text for column in columns for text in column])


def _different(source: str, texts: Sequence[str]) -> Sentences:
    return Sentences(source, list(dict.fromkeys(text for text in texts if text.strip())))


def _text_columns(table: Table) -> tuple[str, ...]:
    there = {name.lower(): name for name in table.columns}
    for names in TEXTS:
        if all(name in there for name in names):
            return tuple(there[name] for name in names)
    if len(there) == 1:
        return tuple(there.values())
    raise HeadcountError(
        f"no column of {table.source} has a usual name for sentences (text, sentence, sentence1 "
        f"and sentence2, …), there are {named(table.columns)}; name them with --text, or, if there "
        "is no header, with --option columns=sentence1,sentence2,score"
    )


def _score_column(table: Table) -> str | None:
    there = {name.lower(): name for name in table.columns}
    return next((there[name] for name in SCORES if name in there), None)


def _numbers(table: Table, column: str) -> list[float]:
    found = []
    for row, value in enumerate(table.column(column), start=1):
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = math.nan
        if not math.isfinite(number):
            raise HeadcountError(
                f"row {row} of {table.source} has {value!r} as {column}, expected a number that "
                "says how similar two sentences are; name the column with --label"
            )
        found.append(number)
    return found


def _held_out(part: Sentences) -> tuple[Sentences, Sentences]:
    """Sentences to train on, and every tenth to evaluate on: neighbours may be similar.

    Of pairs with scores, every tenth pair, and what is in none of these to train on.
    """
    number = part.examples
    if number < 2 * _SHARE:
        what = "pairs" if part.scores else "different sentences"
        raise HeadcountError(
            f"{part.source} has {number} {what}, expected at least {2 * _SHARE} to hold some out; "
            "give more, or name a file to evaluate on"
        )
    last = part.select(range(0, number, max(_SHARE, -(-number // _MOST))))
    out = set(last.texts)
    rest = _different(part.source, [text for text in part.texts if text not in out])
    if not len(rest):
        raise HeadcountError(
            f"{part.source} has the same few sentences in all pairs, so none are left to train on; "
            "give more, or name a file to evaluate on"
        )
    return rest, last
