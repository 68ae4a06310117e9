"""The sentences that a model reads: lines of text, and trees from a CoNLL-U file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from headcount.analysis.roles.criteria import NO_RELATIONS
from headcount.errors import HeadcountError
from headcount.tasks.files import read_lines

_FIELDS = 10  # in a line of CoNLL-U
_ID, _FORM, _HEAD, _RELATION = 0, 1, 6, 7


@dataclass(frozen=True)
class Arc:
    """A dependent and its governor, as numbers of words from 0.

    Attributes:
        dependent: number of the word that depends.
        governor: number of the word that it depends on.
        relation: without its subtype: `nsubj` for `nsubj:pass`.
    """

    dependent: int
    governor: int
    relation: str


@dataclass(frozen=True)
class Sentence:
    """One sentence for a model to read.

    Attributes:
        text: the sentence; with a tree, its words joined by spaces.
        words: the words of its tree; empty without a tree.
        arcs: the arcs of its tree, except the root's and those of punctuation.
        target: its translation, for an encoder-decoder; None uses the model's own.
        pair: a second sentence that the model reads together with it, as in inference; or None.
    """

    text: str
    words: tuple[str, ...] = ()
    arcs: tuple[Arc, ...] = ()
    target: str | None = None
    pair: str | None = None


def read_sentences(
    text: Path | None = None,
    conllu: Path | None = None,
    target: Path | None = None,
    limit: int | None = None,
    pair: Path | None = None,
) -> list[Sentence]:
    """Read the sentences of a text, then those of a CoNLL-U file; files may be gzipped.

    Args:
        text: a file with one sentence per line; empty lines are left out.
        conllu: a file with sentences and their trees.
        target: a file with the translation of each sentence, one per line. It needs either `text`
            or `conllu`, not both.
        limit: how many sentences to take from each file; None takes all.
        pair: a file with a second sentence for each line of `text`, one per line.

    Raises:
        HeadcountError: no file is given, one cannot be read, or the translations or second
            sentences do not match the sentences.
    """
    if text is None and conllu is None:
        raise HeadcountError("there is nothing to read; give a text or a CoNLL-U file")
    if text is not None and conllu is not None and target is not None:
        raise HeadcountError(
            f"{target} cannot say which lines translate {text} and which {conllu}; give "
            "translations with one of the two files"
        )
    if pair is not None and (text is None or conllu is not None):
        raise HeadcountError(
            f"{pair} has second sentences of a text, and trees are of single ones; give both "
            "files as --text and --pair alone"
        )
    found = [] if text is None else [Sentence(line) for line in read_lines(text)[:limit]]
    found += [] if conllu is None else read_conllu(conllu, limit)
    if target is not None:
        lines = _beside(found, target, "translation", limit)
        found = [replace(one, target=line) for one, line in zip(found, lines, strict=True)]
    if pair is not None:
        lines = _beside(found, pair, "second sentence", limit)
        found = [replace(one, pair=line) for one, line in zip(found, lines, strict=True)]
    found = [one for one in found if one.text.strip() and "" not in (one.target, one.pair)]
    if not found:
        raise HeadcountError("all sentences are empty; give a text with a sentence a line")
    return found


def _beside(found: Sequence[Sentence], file: Path, what: str, limit: int | None) -> list[str]:
    """The lines of a file that must have one line per sentence."""
    lines = read_lines(file)
    lines = lines if limit is None else lines[: len(found)]
    if len(lines) != len(found):
        raise HeadcountError(
            f"{file} has {len(lines)} lines, but there are {len(found)} sentences; give a {what} "
            "for every sentence, in a line of its own"
        )
    return lines


def read_conllu(path: Path, limit: int | None = None) -> list[Sentence]:
    """Sentences with their trees from a CoNLL-U file.

    Words are the syntactic ones: `do` and `n't` for `don't`. Empty nodes are left out.

    Args:
        path: the file, plain or gzipped.
        limit: how many sentences to take; None takes all.

    Raises:
        HeadcountError: the file cannot be read, or a line is not CoNLL-U. The line is named.
    """
    found: list[Sentence] = []
    rows: list[list[str]] = []
    for number, line in enumerate([*read_lines(path), ""], start=1):
        if limit is not None and len(found) >= limit:
            break
        if line.startswith("#"):
            continue
        if line.strip():
            fields = line.split("\t")
            if len(fields) != _FIELDS:
                raise HeadcountError(
                    f"line {number} of {path} has {len(fields)} fields, expected the {_FIELDS} of "
                    "CoNLL-U with tabs between them"
                )
            if fields[_ID].isdecimal():  # not 3-4, a range of words, nor 3.1, an empty node
                rows.append(fields)
        elif rows:
            found.append(_sentence(rows, f"the sentence before line {number} of {path}"))
            rows = []
    return found


def _sentence(rows: Sequence[list[str]], where: str) -> Sentence:
    words = tuple(row[_FORM] for row in rows)
    arcs = []
    for dependent, row in enumerate(rows):
        relation = row[_RELATION].partition(":")[0]
        if relation in NO_RELATIONS:
            continue
        if not row[_HEAD].isdecimal() or not 0 <= int(row[_HEAD]) <= len(rows):
            raise HeadcountError(
                f"word {row[_ID]} in {where} has the governor {row[_HEAD]!r}, expected a number "
                f"up to {len(rows)}; give a file with trees"
            )
        if int(row[_HEAD]) > 0:
            arcs.append(Arc(dependent, int(row[_HEAD]) - 1, relation))
    return Sentence(" ".join(words), words, tuple(arcs))
