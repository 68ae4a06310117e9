from __future__ import annotations

import gzip
import os
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from datasets import ClassLabel, Dataset, Features, Value

from headcount.errors import HeadcountError
from headcount.tasks.tables import Table, read_table
from tests.tasks.tiny_text import mistake, write_table

ROWS = {"text": ["null", 'NA "quoted', "ö, ß\u2028\u0085…"], "label": ["nan", "", "None"]}
FORMATS = [f"{ending}{gz}" for ending in ("csv", "tsv", "jsonl", "parquet") for gz in ("", ".gz")]


@pytest.mark.parametrize("ending", FORMATS)
def test_every_format_keeps_text_as_it_is(ending: str, tmp_path: Path) -> None:
    table = read_table(write_table(tmp_path / f"t.{ending}", ROWS))
    assert table.columns == ROWS
    assert len(table) == 3


def test_csv_may_have_lines_within_a_text(tmp_path: Path) -> None:
    columns = {"text": ["one\ntwo", "three\r\nfour"], "label": ["a", "b"]}
    assert read_table(write_table(tmp_path / "t.csv", columns)).columns == columns


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl"])
def test_a_cell_may_have_a_long_document(ending: str, tmp_path: Path) -> None:
    columns = {"text": ["x" * 10_000_000], "label": ["a"]}
    assert read_table(write_table(tmp_path / f"t.{ending}", columns)).columns == columns


def test_a_byte_order_mark_and_windows_line_ends_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "t.tsv"
    path.write_bytes("\ufeffQuality\ttext\r\n1\tone\r\n\r\n".encode())
    assert read_table(path).columns == {"Quality": ["1"], "text": ["one"]}


def test_a_file_without_header_takes_the_names_given(tmp_path: Path) -> None:
    path = tmp_path / "t.tsv"
    names = ("source", "label")
    path.write_text("gj04\t1\n")
    assert read_table(path, names=names).columns == {"source": ["gj04"], "label": ["1"]}
    path.write_text("label\ttext\n1\tone\n")
    assert read_table(path, names=names).columns == {"label": ["1"], "text": ["one"]}


def test_class_labels_of_parquet_have_their_names(tmp_path: Path) -> None:
    features = Features({"text": Value("string"), "label": ClassLabel(names=["no", "yes"])})
    data = Dataset.from_dict({"text": ["a", "b", "c"], "label": [1, 0, -1]}, features=features)
    data.to_parquet(str(tmp_path / "t.parquet"))
    assert read_table(tmp_path / "t.parquet").columns["label"] == ["yes", "no", "-"]


@pytest.mark.parametrize("ending", FORMATS)
def test_a_missing_file_is_told(ending: str, tmp_path: Path) -> None:
    with mistake(rf"there is no file .*t\.{ending}; check"):
        read_table(tmp_path / f"t.{ending}")


@pytest.mark.parametrize("ending", FORMATS)
def test_an_empty_file_is_told(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"t.{ending}"
    path.write_bytes(gzip.compress(b"") if ending.endswith("gz") else b"")
    with mistake("t.* is empty; give"):
        read_table(path)


def test_an_empty_file_named_gz_is_told(tmp_path: Path) -> None:
    (tmp_path / "t.csv.gz").write_bytes(b"")
    with mistake("is empty"):
        read_table(tmp_path / "t.csv.gz")


@pytest.mark.parametrize("ending", ["csv", "tsv", "parquet"])
def test_a_table_without_rows_is_told(ending: str, tmp_path: Path) -> None:
    path = write_table(tmp_path / f"t.{ending}", {"text": [], "label": []})
    with mistake("has no rows, only the columns text, label"):
        read_table(path)


@pytest.mark.parametrize("ending", FORMATS[1::2])
@pytest.mark.parametrize("damage", ["no gzip", "truncated", "garbled"])
def test_broken_gzip_is_told(ending: str, damage: str, tmp_path: Path) -> None:
    path = write_table(tmp_path / f"t.{ending}", {"text": ["word"] * 50, "label": ["a"] * 50})
    data = path.read_bytes()
    garbled = data[:12] + bytes(255 - byte for byte in data[12:20]) + data[20:]
    path.write_bytes({"no gzip": b"text", "truncated": data[:-9], "garbled": garbled}[damage])
    with mistake("is not a whole gzip file: .*again"):
        read_table(path)


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl"])
def test_other_encodings_are_told_with_the_line(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"t.{ending}"
    path.write_bytes("text\nfirst\nStra\u00dfe\n".encode("latin-1"))
    with mistake("is not UTF-8: line 3 has the byte 0xdf .* convert"):
        read_table(path)


@pytest.mark.parametrize("row", ["one", "one\ta\tb"])
def test_a_ragged_tsv_is_told_with_the_line(row: str, tmp_path: Path) -> None:
    path = tmp_path / "t.tsv"
    path.write_text(f"text\tlabel\nfirst\ta\n{row}\nlast\tb\n")
    with mistake(
        r"is ragged: line 3 has [13] fields, but there are 2 columns \(text, label\); mend"
    ):
        read_table(path)
    table = read_table(path, skip_broken=True)
    assert table.columns["text"] == ["first", "last"]
    assert table.broken == 1


def test_a_ragged_csv_is_told_with_the_line(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text('text,label\n"two\nlines",a\n\none\n')
    with mistake("line 5 has 1 fields"):
        read_table(path)


def test_open_quotes_are_told_with_the_line(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text('text,label\none,a\n"two,b\n')
    with mistake("not valid CSV: .* line 3; mend its quotes"):
        read_table(path)


@pytest.mark.parametrize(
    "line, says",
    [
        ('{"text": "b"}', "is ragged: line 2 has the keys text, but the first has text, label"),
        ('{"text": ', "line 2 of .* is not valid JSON"),
        ("[1, 2]", "line 2 of .* is a JSON list; .*one object in every line"),
        (r'{"text": "\ud800", "label": 1}', "line 2 of .* a text has .ud800, .*half a character"),
        (r'{"text": "b", "label": "\uDfff"}', "line 2 of .* a text has .udfff"),
        ("[" * 200_000, "line 2 of .* its brackets are nested too deeply"),
        ('{"text": "b", "label": ' + "9" * 5000 + "}", "line 2 of .* is not valid JSON"),
    ],
)
def test_broken_json_lines_are_told_with_the_line(line: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"text": "a", "label": 1}\n' + line)
    with mistake(says):
        read_table(path)


@pytest.mark.parametrize("cut", [0, 20])
def test_broken_parquet_is_told(cut: int, tmp_path: Path) -> None:
    path = write_table(tmp_path / "t.parquet", ROWS)
    path.write_bytes(path.read_bytes()[:-cut] if cut else b"text, label")
    with mistake("is not a whole Parquet file: .*again"):
        read_table(path)


@pytest.mark.parametrize("name", ["t.xlsx", "t", "t.txt.gz", "t.zip"])
def test_an_unknown_ending_is_told(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("text\tlabel\none\ta\n")
    with mistake("not a table that can be read: .*ends in .csv, .tsv, .jsonl, .parquet"):
        read_table(tmp_path / name)


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "t.csv").mkdir()
    with mistake("cannot be read: it is a folder"):
        read_table(tmp_path / "t.csv")


def test_a_missing_column_is_told_with_those_there_are() -> None:
    with mistake("t.csv has no column 'sentence', it has text, label; name"):
        Table("t.csv", ROWS).column("sentence")


def test_two_columns_of_one_name_are_told(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("text,text\na,b\n")
    with mistake("two columns called 'text'"):
        read_table(tmp_path / "t.csv")


def test_a_whole_pair_of_surrogates_is_one_character(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text(r'{"text": "\ud83d\ude00"}')
    assert read_table(tmp_path / "t.jsonl").columns == {"text": ["😀"]}


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl"])
def test_a_byte_order_mark_alone_is_an_empty_file(ending: str, tmp_path: Path) -> None:
    (tmp_path / f"t.{ending}").write_bytes("\ufeff\n\u2003".encode())
    with mistake("is empty; give"):
        read_table(tmp_path / f"t.{ending}")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le"])
def test_what_has_nul_is_no_text(encoding: str, tmp_path: Path) -> None:
    text = "text,label\n" + ("a\0b,c\n" if encoding == "utf-8" else "ab,c\n")
    (tmp_path / "t.csv").write_bytes(text.encode(encoding))
    with mistake("is not UTF-8: line [12] has the byte 0x00 .* convert"):
        read_table(tmp_path / "t.csv")


def test_parquet_with_other_bytes_than_utf_8_is_told(tmp_path: Path) -> None:
    texts = pyarrow.array([b"one", b"\xff\xfe"]).cast(pyarrow.string(), safe=False)
    pyarrow.parquet.write_table(pyarrow.table({"text": texts}), tmp_path / "t.parquet")
    with mistake("is not a whole Parquet file: .*UTF8"):
        read_table(tmp_path / "t.parquet")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no such files")
def test_pipes_and_devices_are_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "zero.csv").symlink_to("/dev/zero")
    for name in ("pipe.csv", "zero.csv"):
        with mistake("cannot be read: it is a pipe or a device; write"):
            read_table(tmp_path / name)


def test_names_that_no_file_can_have_are_told(tmp_path: Path) -> None:
    for name in ("x" * 5000 + ".csv", "a\0b.csv"):
        with mistake("cannot be read|there is no file"):
            read_table(tmp_path / name)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read all")
def test_missing_rights_are_told(tmp_path: Path) -> None:
    path = write_table(tmp_path / "closed" / "t.csv", ROWS)
    path.chmod(0)
    with mistake("cannot be read: Permission denied; check"):
        read_table(path)


def test_a_message_does_not_repeat_a_whole_file(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(",".join("x" * 1000 + str(n) for n in range(1000)))
    with pytest.raises(HeadcountError) as told:
        read_table(tmp_path / "t.csv")
    assert len(str(told.value)) < 1500
    assert "and 988 more" in str(told.value)
