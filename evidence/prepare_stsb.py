"""Make the folder of sentences that the study `sentences` reads.

    python evidence/prepare_stsb.py STSB data/stsb

STSB holds `train.csv.gz` and `dev.csv.gz`, without a header: two sentences and a score from 0 to 5.
All sentences of the first become `train.txt`. Pairs of the second go by turns to `choose.csv`, to
choose settings on, and to `report.csv`.
"""

from __future__ import annotations

import argparse
import csv
import gzip
from pathlib import Path

COLUMNS = ("sentence1", "sentence2", "score")


def rows_of(path: Path) -> list[list[str]]:
    """The rows of a compressed table."""
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


def prepare(stsb: Path, place: Path) -> None:
    """Write sentences to train on, and two tables of pairs."""
    place.mkdir(parents=True, exist_ok=True)
    lines = (" ".join(text.split()) for row in rows_of(stsb / "train.csv.gz") for text in row[:2])
    texts = dict.fromkeys(lines)
    (place / "train.txt").write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    pairs = rows_of(stsb / "dev.csv.gz")
    for start, name in enumerate(("choose", "report")):
        with (place / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([COLUMNS, *pairs[start::2]])


def main() -> None:
    """Read the places from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stsb", type=Path)
    parser.add_argument("place", type=Path)
    given = parser.parse_args()
    prepare(given.stsb, given.place)


if __name__ == "__main__":
    main()
