"""Add sentences of other collections to those of STS-B, for the trainings of `sentences`.

    python evidence/prepare_more_sentences.py data/stsb SNLI.tsv.gz MNLI.tsv.gz TATOEBA.tsv.gz

The first two have a header with `sentence1` and `sentence2`, the last an English sentence in its
first column. `train-more.txt` gets `train.txt`, 40,000 sentences of each of the first two and
10,000 of the last, none of which is in `choose.csv` or `report.csv`. `--times 2` takes twice as
many, into `train-more-2.txt`.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import random
from collections.abc import Iterable
from pathlib import Path

SHORTEST, LONGEST = 10, 400  # characters


def of_pairs(path: Path) -> set[str]:
    """Both sentences of every pair."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        return {row[name] for row in rows for name in ("sentence1", "sentence2")}


def of_first_column(path: Path) -> set[str]:
    """The text before the first tab of every line."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return {line.split("\t")[0] for line in file}


def drawn(texts: Iterable[str], number: int, draw: random.Random) -> list[str]:
    """So many texts of a usual length, in a random order."""
    fitting = sorted(text for text in texts if text and SHORTEST < len(text) < LONGEST)
    draw.shuffle(fitting)
    return fitting[:number]


def prepare(place: Path, snli: Path, mnli: Path, tatoeba: Path, times: int) -> None:
    """Write `train-more.txt`."""
    draw = random.Random(0)
    more = [text for path in (snli, mnli) for text in drawn(of_pairs(path), 40_000 * times, draw)]
    more += drawn(of_first_column(tatoeba), 10_000 * times, draw)
    held_out: set[str] = set()
    for name in ("choose.csv", "report.csv"):
        with (place / name).open(encoding="utf-8", newline="") as file:
            held_out |= {text for row in csv.reader(file) for text in row[:2]}
    texts = (place / "train.txt").read_text(encoding="utf-8").splitlines()
    texts += [text for text in more if text not in held_out]
    draw.shuffle(texts)
    name = "train-more.txt" if times == 1 else f"train-more-{times}.txt"
    (place / name).write_text("\n".join(texts) + "\n", encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for name in ("place", "snli", "mnli", "tatoeba"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--times", type=int, default=1)
    prepare(**vars(parser.parse_args()))
