"""Small studies, written as real ones are: one of BERT's layout, one of a translator's."""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headcount.heads.mask import HeadMask
from headcount.runs.output import save_importances
from headcount.runs.result import RunResult, Sides
from headcount.study.read import COLUMNS
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
        self.watched = False  # whether the metric was measured during the trainings
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
            course = self.course(method, order, kept, seed)
            if self.watched:
                value = next(iter(values.values()))
                for step, heads, _ in course.selections:
                    share = len(set(heads) & mask.kept) / kept
                    course.record_metric(step, value * (0.3 + 0.7 * share**2 * min(1, step / 600)))
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

    def course(self, method: str, order: list[int], kept: int, seed: int) -> SelectionHistory:
        """Ever fewer heads are not those of the end; without annealing some until the end."""
        course = SelectionHistory()
        annealed = "no-annealing" not in method
        rest = 0.0 if annealed else 0.25
        for step in range(0, 1001, 100):
            far = max(rest * (step < 1000), 1 - step / (440 + 5 * kept + 100 * seed))
            wrong = round(kept * 0.6 * far)
            chosen = [*order[wrong:kept], *order[kept : kept + wrong]]
            heat = 2.0 * 0.005 ** min(1.0, step / 700) if annealed else 0.5
            mask = HeadMask("bert", self.layout, frozenset(chosen))
            course.record(step, mask, heat if "dsp" in method else None)
        return course

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


# BLEU that is lost, by method.
TRANSLATED = {
    "joint-dsp": 1, "joint-dsp-no-annealing": 2, "pipelined-dsp": 3, "ste": 2, "random": 6,
    "michel": 5,
}  # fmt: skip


def write_translation(
    folder: Path,
    methods: Sequence[str] = ("joint-dsp", "michel"),
    counts: Sequence[int] = (12, 4, 2),
    seeds: int = 1,
    layers: int = 3,
    watched: bool = False,
) -> Path:
    """Three kinds of attention; those in the middle, the decoder's, are kept longest."""
    kinds = ("encoder", "decoder", "cross")
    layout = tuple((f"{kind}.{layer}", 4) for kind in kinds for layer in range(layers))
    writer = Writer(folder, metric="bleu", layout=layout)
    writer.watched = watched
    draw = random.Random(0)
    texts = [" ".join(draw.choices(list("abcdefgh"), k=8)) for _ in range(40)]
    for seed in range(seeds):
        for method in methods:
            harm = TRANSLATED[method]
            rows = [
                {"prediction": " ".join([*t.split()[: 8 - harm], *["x"] * harm]), "reference": t}
                for t in texts
            ]
            for keep in counts:
                value = 30.0 - harm - (8 + 2 * harm) / keep + 0.3 * draw.random()
                writer.run(
                    method, keep, seed, {"test": rows}, {"test": value}, generates=True,
                    history=watched and method not in ("michel", "random"),
                )  # fmt: skip
        if watched:
            writer.run("unpruned", None, seed, {"test": rows}, {"test": 30.0 + 0.2 * seed})
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
