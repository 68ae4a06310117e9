"""Make the folder of sentence pairs that the study `deen` reads.

    pip install sacremoses
    python evidence/prepare_deen.py MULTI30K IWSLT14 data/deen

MULTI30K holds train, val, test_2016_flickr and test_2017_flickr, IWSLT14 holds iwslt14.test, each
as `.de.gz` and `.en.gz`. The test set of IWSLT14 comes in lower case and split into tokens, so
all is put in lower case, and its tokens are joined again as text has them.
"""

from __future__ import annotations

import argparse
import gzip
from pathlib import Path

from sacremoses import MosesDetokenizer

CAPTIONS = ("train", "val", "test_2016_flickr", "test_2017_flickr")


def lines_of(path: Path) -> list[str]:
    """The lines of a compressed file."""
    return gzip.decompress(path.read_bytes()).decode().removesuffix("\n").split("\n")


def write(lines: list[str], path: Path) -> None:
    """Write lines in lower case."""
    path.write_text("".join(f"{line.lower()}\n" for line in lines), encoding="utf-8")


def prepare(multi30k: Path, iwslt14: Path, place: Path) -> None:
    """Write both languages of all sets."""
    place.mkdir(parents=True, exist_ok=True)
    for language in ("de", "en"):
        for name in CAPTIONS:
            write(lines_of(multi30k / f"{name}.{language}.gz"), place / f"{name}.{language}")
        text = MosesDetokenizer(lang=language)
        talks = lines_of(iwslt14 / f"iwslt14.test.{language}.gz")
        write([text.detokenize(line.split()) for line in talks], place / f"iwslt14_test.{language}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    for folder in ("multi30k", "iwslt14", "place"):
        parser.add_argument(folder, type=Path)
    asked = parser.parse_args()
    prepare(asked.multi30k, asked.iwslt14, asked.place)
