"""Small data for the tasks that read text: captions of a toy language, and files of them."""

import gzip
import random
from pathlib import Path

WORDS = {
    "mann": "man", "frau": "woman", "hund": "dog", "katze": "cat", "kind": "child",
    "läuft": "runs", "schläft": "sleeps", "sitzt": "sits", "springt": "jumps",
    "rot": "red", "grün": "green", "groß": "big", "klein": "small",
}  # fmt: skip


def captions(count: int, seed: int = 0) -> tuple[list[str], list[str]]:
    draw, words = random.Random(seed), list(WORDS)
    rows = [
        [draw.choice(words[9:]), draw.choice(words[:5]), draw.choice(words[5:9])]
        for _ in range(count)
    ]
    sources = [f"Ein {' '.join(row)}." for row in rows]
    return sources, [f"A {' '.join(WORDS[word] for word in row)}." for row in rows]


def write(path: Path, lines: list[str]) -> Path:
    text = "".join(line + "\n" for line in lines)
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "wt", encoding="utf-8", newline="") as file:
        file.write(text)
    return path


def write_pairs(folder: Path, name: str, count: int, seed: int = 0, ending: str = "") -> None:
    sources, targets = captions(count, seed)
    write(folder / f"{name}.de{ending}", sources)
    write(folder / f"{name}.en{ending}", targets)
