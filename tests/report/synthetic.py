"""A small study, written as a real one is: BERT's layout, three methods, three seeds."""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headcount.heads.mask import HeadMask
from headcount.report.study_data import COLUMNS
from headcount.runs.importance import save_importances
from headcount.runs.result import RunResult, Sides
from headcount.training.history import SelectionHistory

BORN = 48
LAYOUT = tuple((f"encoder.{layer}", 12) for layer in range(4))
EXAMPLES = 200
LABELS = ("entailment", "neutral", "contradiction")
SPLITS = ("matched", "mismatched")
# Right answers of 200, on the first evaluation set, by method and heads; a seed adds its number.
RIGHT = {
    "joint-dsp": {36: 164, 24: 162, 12: 156, 6: 148, 2: 130},
    "ste": {36: 165, 24: 160, 12: 150, 6: 132, 2: 110},
    "michel": {36: 163, 24: 120, 12: 84, 6: 70, 2: 66},
}


class Writer:
    """Writes runs into a study's folder, and their rows."""

    def __init__(self, folder: Path, metric: str = "accuracy", layout: Any = LAYOUT) -> None:
        self.folder, self.metric, self.layout = folder, metric, layout
        self.splits: Sequence[str] = SPLITS
        self.rows: list[dict[str, Any]] = []

    def run(
        self,
        method: str,
        keep: int | None,
        seed: int,
        answers: dict[str, list[dict[str, Any]]],
        values: dict[str, float],
        heads: int | None = None,
        penalty: float | None = None,
        history: bool = False,
        generates: bool = False,
    ) -> Path:
        born = sum(count for _, count in self.layout)
        kept = heads or keep or born
        name = f"{method}-{keep or penalty or 'all'}-seed{seed}"
        place = self.folder / "runs" / name
        (place / "predictions").mkdir(parents=True)
        draw = random.Random(f"{method}{kept}{seed}")
        # Middle layers are kept most, as in the paper.
        scores = [1 - abs(h / born - 0.45) - 0.5 * draw.random() for h in range(born)]
        order = sorted(range(born), key=lambda h: -scores[h])
        mask = HeadMask("bert", self.layout, frozenset(order[:kept]))
        mask.save(place / "mask.json")
        save_importances(place / "importance.json", method, mask, scores)
        how = f"method:{method}|keep:{kept}/{born}" + (f"|lambda:{penalty:g}" if penalty else "")
        signatures = {split: f"{how}|seed:{seed}|data:mnli-{split}|tok:13a" for split in values}
        parameters = Sides(66_000_000, 66_000_000 - 250_000 * (born - kept))
        speed = Sides(100.0, 100.0 + 0.9 * (born - kept) + draw.random())
        result = RunResult(
            method=method,
            metric=self.metric,
            greater_is_better=self.metric != "perplexity",
            scores={split: {self.metric: value} for split, value in values.items()},
            before=None,
            signatures=signatures,
            heads=Sides(born, kept),
            parameters=parameters,
            bytes=Sides(4 * parameters.before, 4 * parameters.after),
            examples_per_second=speed,
            generated_per_second=speed if generates else None,
            difference=0.0,
            seconds={"training": 60.0},
        )
        result.save(place)
        settings = {
            "model": "models/bert-small", "task": "mnli", "method": method, "keep": keep,
            "seed": seed, "settings": {} if penalty is None else {"lambda": penalty},
        }  # fmt: skip
        (place / "settings.json").write_text(json.dumps(settings))
        if history:
            course = SelectionHistory()
            for step in range(0, 1001, 100):
                wrong = round(kept * 0.6 * max(0.0, 1 - step / (500 + 100 * seed)))
                chosen = [*order[wrong:kept], *order[kept : kept + wrong]]
                course.record(step, HeadMask("bert", self.layout, frozenset(chosen)))
            course.save(place / "selection_history.json")
        for split, rows in answers.items():
            (place / "predictions" / f"{split}.json").write_text(json.dumps(rows))
        for split, value in values.items():
            row = {
                "model": "bert-small", "task": "mnli", "method": method, "keep": keep,
                "seed": seed, "split": split, "metric": self.metric, "value": value,
                "heads": kept, "parameters": int(parameters.after), "seconds": 60.0,
                "signature": signatures[split],
            }  # fmt: skip
            self.rows.append(row)
        return place

    def finish(self) -> Path:
        with (self.folder / "results.csv").open("w", newline="") as file:
            table = csv.DictWriter(file, COLUMNS)
            table.writeheader()
            table.writerows(self.rows)
        return self.folder


def answers(right: int, of: int = EXAMPLES) -> list[dict[str, str]]:
    """The first so many answers are right."""
    rows = []
    for i in range(of):
        reference = LABELS[i % 3]
        wrong = LABELS[(i + 1) % 3]
        rows.append({"prediction": reference if i < right else wrong, "reference": reference})
    return rows


def write_study(folder: Path, seeds: int = 3, splits: Sequence[str] = SPLITS) -> Path:
    writer = Writer(folder)
    writer.splits = splits
    for seed in range(seeds):
        for method, by_heads in RIGHT.items():
            for keep, right in by_heads.items():
                _write(writer, method, keep, seed, right + seed, history=method != "michel")
        _write(writer, "unpruned", None, seed, 168 + seed)
        for penalty, heads in ((0.01, 40), (0.1, 20), (1.0, 5)):
            _write(
                writer, "hard-concrete", None, seed, 130 + heads // 2,
                heads=heads - seed, penalty=penalty, history=True,
            )  # fmt: skip
    return writer.finish()


def _write(
    writer: Writer, method: str, keep: int | None, seed: int, right: int, **more: Any
) -> None:
    count = {split: right - 2 * place for place, split in enumerate(writer.splits)}
    writer.run(
        method,
        keep,
        seed,
        {split: answers(n) for split, n in count.items()},
        {split: n / EXAMPLES for split, n in count.items()},
        **more,
    )
