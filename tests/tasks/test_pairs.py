import gzip
import os
from pathlib import Path

import pytest

from headcount import HeadcountError
from headcount.tasks.base import DataSettings
from headcount.tasks.pairs import Pairs, read_pairs
from headcount.tasks.translation import Translation
from tests.tasks.text_data import captions, write, write_pairs


def settings(data: Path, **others: object) -> DataSettings:
    return DataSettings(str(data), source="de", target="en", **others)  # type: ignore[arg-type]


def test_aligned_files_plain_and_gzip(tmp_path: Path) -> None:
    write_pairs(tmp_path, "train", 20, ending=".gz")
    write_pairs(tmp_path, "valid", 5, seed=1)
    sets = read_pairs(settings(tmp_path))
    assert list(sets) == ["train", "valid"]
    assert (sets["train"].sources, sets["train"].targets) == captions(20)
    back = read_pairs(DataSettings(str(tmp_path), source="en", target="de"))
    assert (back["valid"].targets, back["valid"].sources) == captions(5, 1)


def test_sets_are_named_in_the_settings(tmp_path: Path) -> None:
    write_pairs(tmp_path, "my.train", 4)
    write_pairs(tmp_path, "test_2016", 3)
    write_pairs(tmp_path, "test_2017", 2)
    found = read_pairs(settings(tmp_path, train="my.train", evaluate=("test_2017", "test_2016")))
    assert {name: len(pairs) for name, pairs in found.items()} == {
        "train": 4, "test_2017": 2, "test_2016": 3,
    }  # fmt: skip


def test_only_newlines_end_lines(tmp_path: Path) -> None:
    write(tmp_path / "train.de", ["a\u2028b\x0c", "c"])
    (tmp_path / "train.en").write_bytes(b"x\r\ny\r\n")
    pairs = read_pairs(settings(tmp_path))["train"]
    assert (pairs.sources, pairs.targets) == (["a\u2028b\x0c", "c"], ["x", "y"])


def test_tables_with_and_without_header(tmp_path: Path) -> None:
    rows = ["Go.\tGeh.", 'A "quoted\tEin Zitat"']
    bare = write(tmp_path / "bare.tsv.gz", rows)
    named = write(tmp_path / "named.tsv", ["en\tde", *rows])
    expected = (["Geh.", 'Ein Zitat"'], ["Go.", 'A "quoted'])
    for path, columns in ((bare, ("en", "de")), (named, ()), (named, ("en", "de"))):
        pairs = read_pairs(settings(path), columns)["train"]
        assert (pairs.sources, pairs.targets) == expected
    with pytest.raises(HeadcountError, match=r"option columns, for example columns=en,de"):
        read_pairs(settings(bare))


def test_a_column_called_translation(tmp_path: Path) -> None:
    row = '{"translation": {"de": "Hund", "en": "dog"}}'
    pairs = read_pairs(settings(write(tmp_path / "train.jsonl", [row, row])))["train"]
    assert (pairs.sources, pairs.targets) == (["Hund"] * 2, ["dog"] * 2)


def test_pairs_with_an_empty_side_are_dropped_and_counted() -> None:
    pairs = Pairs(["a", "", "c"], ["x", "y", " "]).complete()
    assert (pairs.sources, pairs.targets, pairs.rows, pairs.dropped) == (["a"], ["x"], [0], 2)


def test_nothing_held_out_is_trained_on() -> None:
    pairs = Pairs([f"s{i // 2}" for i in range(40)], [f"t{i}" for i in range(40)])
    train, others = pairs.hold_out(6, seed=0)
    assert len(others) == 6
    assert not set(train.sources) & set(others.sources)
    assert len(train) + 6 < 40  # their twins are gone too


@pytest.mark.parametrize(
    "broken",
    [b"\x1f\x8b\x08\x00broken", gzip.compress(b"a\n" * 99)[:-12], b"a"],
    ids=["damaged", "cut off", "not gzip"],  # what gzip writes depends on the time
)
def test_a_broken_gzip_file(tmp_path: Path, broken: bytes) -> None:
    write_pairs(tmp_path, "train", 4, ending=".gz")
    (tmp_path / "train.de.gz").write_bytes(broken)
    with pytest.raises(HeadcountError, match=r"train\.de\.gz is not a whole gzip file"):
        read_pairs(settings(tmp_path))


def test_files_that_do_not_fit(tmp_path: Path) -> None:
    write_pairs(tmp_path, "train", 4)
    write(tmp_path / "train.en", ["a", "b", "c"])
    with pytest.raises(HeadcountError, match=r"train\.de has 4 lines but .*train\.en has 3"):
        read_pairs(settings(tmp_path))
    (tmp_path / "train.en").write_text("\n\n")
    with pytest.raises(HeadcountError, match=r"train\.en is empty"):
        read_pairs(settings(tmp_path))
    (tmp_path / "train.en").write_bytes("für\n".encode("latin-1") * 4)
    with pytest.raises(HeadcountError, match=r"train\.en is not UTF-8: line 1 has the byte 0xfc"):
        read_pairs(settings(tmp_path))
    (tmp_path / "train.en").unlink()
    with pytest.raises(HeadcountError, match=r"train\.de has no partner: there is no train\.en"):
        read_pairs(settings(tmp_path))
    (tmp_path / "train.de").unlink()
    with pytest.raises(HeadcountError, match=r"neither train\.de with train\.en"):
        read_pairs(settings(tmp_path))
    with pytest.raises(HeadcountError, match="there is no file or folder"):
        read_pairs(settings(tmp_path / "absent"))
    with pytest.raises(HeadcountError, match="give two languages"):
        read_pairs(DataSettings(str(tmp_path), source="de"))


def test_a_set_to_evaluate_on_is_needed(tmp_path: Path) -> None:
    write_pairs(tmp_path, "train", 30)
    with pytest.raises(HeadcountError, match="no validation set"):
        Translation(settings(tmp_path))
    task = Translation(settings(tmp_path, options={"hold_out": "5"}))
    assert "data:" in task.signature("held_out")
    with pytest.raises(HeadcountError, match="cannot hold out 30 of 30"):
        Translation(settings(tmp_path, options={"hold_out": 30}))


@pytest.mark.skipif("HEADCOUNT_DATA" not in os.environ, reason="needs data in HEADCOUNT_DATA")
def test_real_data(tmp_path: Path) -> None:
    root = Path(os.environ["HEADCOUNT_DATA"])
    names = ("val", "test_2016_flickr")
    options = {"layers": 1, "width": 16, "heads": 2}
    real = settings(root / "multi30k", evaluate=names, cache=tmp_path, options=options)
    task = Translation(real)
    assert len(task.training_lines()) == 2 * 29_000 and task.dropped == 0
    tokenizer = task.load_processor("scratch:marian")
    assert len(tokenizer) == 10_000
    line = task.training_lines()[0]
    assert tokenizer.decode(tokenizer(line)["input_ids"], skip_special_tokens=True) == line
    tatoeba = next((root / "tatoeba_deen").glob("*.tsv.gz"))
    found = read_pairs(settings(tatoeba), ("en", "de"))["train"]
    assert (len(found), found.targets[0]) == (169_813, "Hi.")
    iwslt = settings(root / "iwslt_deen", train="iwslt14.valid", evaluate=("iwslt14.test",))
    assert [len(pairs) for pairs in read_pairs(iwslt).values()] == [7_283, 6_750]


@pytest.mark.parametrize("row", ["3", "null", '{"de": "drei"}', '{"de": "drei", "en": null}'])
def test_a_translation_without_a_side_is_empty_there(row: str, tmp_path: Path) -> None:
    whole = '{"translation": {"de": "eins", "en": "one"}}\n'
    (tmp_path / "train.jsonl").write_text(whole + f'{{"translation": {row}}}\n')
    (tmp_path / "val.jsonl").write_text(whole)
    assert read_pairs(settings(tmp_path))["train"].targets == ["one", ""]


def test_a_side_that_is_no_text_is_told(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text('{"de": "eins", "en": "one"}\n{"de": [2], "en": "two"}')
    with pytest.raises(HeadcountError, match=r"row 2 of .* has \[2\] in the column 'de' where a"):
        read_pairs(settings(tmp_path))
