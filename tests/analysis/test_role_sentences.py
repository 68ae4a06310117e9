from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from headcount.analysis.roles import Sentence, read_conllu, read_sentences
from headcount.analysis.roles.batches import make_examples
from headcount.analysis.roles.sentences import Arc
from headcount.errors import HeadcountError


def test_pieces_belong_to_the_word_that_they_were_cut_from() -> None:
    """In whichever way a tokenizer writes spaces: here as a part of the next piece."""
    raw = Tokenizer(models.BPE({c: i for i, c in enumerate("Ġabc")} | {"bc": 4}, [("b", "c")]))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    pieces = PreTrainedTokenizerFast(tokenizer_object=raw)
    sentence = Sentence("abc a cbc", ("abc", "a", "cbc"), (Arc(0, 1, "obj"),))
    (example,) = make_examples(pieces, [sentence], 20)
    assert " ".join(pieces.convert_ids_to_tokens(list(example.source))) == "a bc Ġ a Ġ c bc"
    assert example.words == (0, 0, 1, 1, 2, 2, 2)


TREES = """# text = I don't see
1\tI\t_\t_\t_\t_\t4\tnsubj:pass\t_\t_
2-3\tdon't\t_\t_\t_\t_\t_\t_\t_\t_
2\tdo\t_\t_\t_\t_\t4\taux\t_\t_
3\tn't\t_\t_\t_\t_\t4\tadvmod\t_\t_
3.1\tnothing\t_\t_\t_\t_\t_\t_\t_\t_
4\tsee\t_\t_\t_\t_\t0\troot\t_\t_
5\t.\t_\t_\t_\t_\t4\tpunct\t_\t_

1\tGo\t_\t_\t_\t_\t0\troot\t_\t_
"""


def test_conllu_is_read_by_words(tmp_path: Path) -> None:
    file = tmp_path / "trees.conllu.gz"
    file.write_bytes(gzip.compress(TREES.encode()))
    first, second = read_conllu(file)
    assert first.text == "I do n't see ." and second.words == ("Go",)
    assert first.arcs == (Arc(0, 3, "nsubj"), Arc(1, 3, "aux"), Arc(2, 3, "advmod"))
    assert len(read_conllu(file, limit=1)) == 1


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [("\t4\taux", "\t9\taux", "governor '9'"), ("1\tGo\t_", "1\tGo", "9 fields")],
)
def test_broken_conllu_is_told(tmp_path: Path, old: str, new: str, message: str) -> None:
    file = tmp_path / "trees.conllu"
    file.write_text(TREES.replace(old, new))
    with pytest.raises(HeadcountError, match=message):
        read_conllu(file)


def test_translations_must_match_the_sentences(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one\n\ntwo\n")
    (tmp_path / "b").write_text("eins\n\nzwei\ndrei\n")
    with pytest.raises(HeadcountError, match="4 lines, but there are 3"):
        read_sentences(tmp_path / "a", target=tmp_path / "b")
    assert len(read_sentences(tmp_path / "a", target=tmp_path / "b", limit=3)) == 2


def test_translations_of_two_files_at_once_are_refused(tmp_path: Path) -> None:
    """With a limit, the lines of the second file would be taken for the first one's."""
    for name in ("text", "target"):
        (tmp_path / name).write_text("one\ntwo\n")
    (tmp_path / "trees").write_text(TREES)
    with pytest.raises(HeadcountError, match="one of the two files"):
        read_sentences(*(tmp_path / name for name in ("text", "trees", "target")), limit=1)


def test_second_sentences_stand_beside_the_first(tmp_path: Path) -> None:
    (tmp_path / "first").write_text("a b\nc d\ne f\n")
    (tmp_path / "second").write_text("b\n\nf\n")
    first, last = read_sentences(tmp_path / "first", pair=tmp_path / "second")
    assert (first.text, first.pair, last.pair) == ("a b", "b", "f")
    (only,) = read_sentences(tmp_path / "first", limit=1, pair=tmp_path / "second")
    assert only == first
    (tmp_path / "second").write_text("b\n")
    with pytest.raises(HeadcountError, match="1 lines, but there are 3 sentences"):
        read_sentences(tmp_path / "first", pair=tmp_path / "second")
    (tmp_path / "trees").write_text(TREES)
    with pytest.raises(HeadcountError, match="trees are of single ones"):
        read_sentences(conllu=tmp_path / "trees", pair=tmp_path / "second")
