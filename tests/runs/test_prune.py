"""The main job, on a small encoder and tables: every method, every file, stop and go on."""

from __future__ import annotations

import copy
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import headcount as hc
from headcount import HeadcountError
from headcount.pruners.methods import METHODS
from headcount.runs.evaluate import evaluate_model
from headcount.runs.job import PruningJob
from headcount.runs.measure import checked_difference
from headcount.runs.progress import Silent
from headcount.runs.prune import prune
from headcount.runs.result import RunResult
from headcount.runs.settings import RunSettings, TrainingSettings
from tests.runs.stopping import stopped_training
from tests.small_task import HEADS
from tests.tiny import build, family_named

TRAINING = TrainingSettings(epochs=2.0, batch_size=16, learning_rate=1e-3, log_every=2)


@pytest.fixture
def settings(encoder: Path, tables: Path) -> RunSettings:
    return RunSettings(
        str(encoder), "classification", str(tables), keep=3, seed=1, training=TRAINING
    )


@pytest.fixture(scope="session")
def bases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bases")


@pytest.mark.parametrize("method", METHODS)
def test_every_method_gives_a_model_that_reloads(
    settings: RunSettings, method: str, tmp_path: Path, bases: Path
) -> None:
    own: dict[str, Any] = {
        "ablation": {"layers": [0, 1]},
        "hard-concrete": {"steer": True},
        "ste": {"commit_at": 0.5},  # its heads leave while it trains
    }.get(method, {})
    chosen = replace(settings, method=method, settings=own)
    keep = 3 if method != "unpruned" else HEADS
    result = prune(chosen, tmp_path / "out", base=bases / "base", speed=False)
    kept = keep + (2 if method == "ablation" else 0)  # layer 2 is out of its scope
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "out")
    assert len(hc.find_heads(model)) == kept == result.heads.after
    assert model.config.id2label == {0: "bad", 1: "good"}
    assert hc.HeadMask.load(tmp_path / "out" / "mask.json").indices
    assert AutoTokenizer.from_pretrained(tmp_path / "out").pad_token == "[PAD]"
    assert result.difference < 1e-5
    assert result.before is not None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]


def test_the_files_say_what_was_measured(settings: RunSettings, tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = prune(settings, out)
    assert RunResult.load(out) == result
    _, again = evaluate_model(replace(settings, model=str(out)), None, Silent())
    assert again["validation"].metrics == pytest.approx(result.scores["validation"], abs=1e-6)
    predictions = json.loads((out / "predictions" / "validation.json").read_text())
    assert [row["prediction"] for row in predictions] == list(again["validation"].predictions)
    right = [row["prediction"] == row["reference"] for row in predictions]
    assert sum(right) / len(right) == pytest.approx(result.scores["validation"]["accuracy"])
    card = (out / "README.md").read_text()
    assert "3 of 6 attention heads" in card
    assert result.signatures["validation"] in card
    assert "method:handover|keep:3/6" in result.signatures["validation"]
    weights = sum(t.numel() * 4 for t in load_file(out / "model.safetensors").values())
    assert result.bytes.after == weights
    assert result.examples_per_second is not None
    assert json.loads((out / "settings.json").read_text())["keep"] == 3
    rows = json.loads((out / "importance.json").read_text())["heads"]
    assert [row["head"] for row in rows if row["kept"]] == list(
        hc.HeadMask.load(out / "mask.json").names
    )
    best = sorted(rows, key=lambda row: -row["importance"])[:3]
    assert all(row["kept"] for row in best)
    assert (out / "heads.png").stat().st_size > 1000
    assert json.loads((out / "selection_history.json").read_text())["selections"]


def test_a_mask_evaluates_like_the_cut_model(settings: RunSettings, tmp_path: Path) -> None:
    base = tmp_path / "base"
    result = prune(replace(settings, method="michel"), tmp_path / "out", base=base, speed=False)
    mask = hc.HeadMask.load(tmp_path / "out" / "mask.json")
    _, masked = evaluate_model(replace(settings, model=str(base)), mask, Silent())
    assert masked["validation"].metrics == pytest.approx(result.scores["validation"], abs=1e-6)


def test_the_base_model_is_trained_once(settings: RunSettings, tmp_path: Path) -> None:
    base = tmp_path / "base"
    first = prune(replace(settings, method="random"), tmp_path / "a", base=base, speed=False)
    written = (base / "model.safetensors").stat().st_mtime_ns
    second = prune(replace(settings, method="michel"), tmp_path / "b", base=base, speed=False)
    assert (base / "model.safetensors").stat().st_mtime_ns == written
    assert first.before == second.before


def test_a_base_model_of_other_settings_is_refused(settings: RunSettings, tmp_path: Path) -> None:
    random = replace(settings, method="random")
    prune(random, tmp_path / "a", base=tmp_path / "base", speed=False)
    with pytest.raises(HeadcountError, match="was fine-tuned with seed 1, but this run has 2"):
        prune(replace(random, seed=2), tmp_path / "b", base=tmp_path / "base", speed=False)


def test_michel_stops_before_the_metric_falls(settings: RunSettings, tmp_path: Path) -> None:
    michel = replace(settings, method="michel", keep=None, settings={"until": 1.0, "step": 1})
    result = prune(michel, tmp_path / "out", base=tmp_path / "base", speed=False)
    assert result.before is not None
    assert result.scores["validation"]["accuracy"] >= result.before["validation"]["accuracy"]


def test_the_same_seed_gives_the_same_model(settings: RunSettings, tmp_path: Path) -> None:
    for name in "ab":
        prune(settings, tmp_path / name, speed=False)
    first, second = (load_file(tmp_path / name / "model.safetensors") for name in "ab")
    assert all((first[name] == second[name]).all() for name in first)


SCRIPT = """
import json, sys
from pathlib import Path
from headcount.runs.prune import prune
from headcount.runs.job import PruningJob
from headcount.runs.settings import ExampleSettings, RunSettings, TrainingSettings

given = json.loads(sys.argv[1])
training = TrainingSettings(**given.pop("training"))
settings = RunSettings(**{**given, "training": training, "examples": ExampleSettings()})
print("ready", flush=True)
prune(settings, Path(sys.argv[2]), resume=True, speed=False)
"""


def _start(settings: RunSettings, out: Path) -> subprocess.Popen[str]:
    arguments: dict[str, Any] = settings.to_dict()
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, json.dumps(arguments), str(out)],
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # As many threads as here: another number adds up in another order.
        env={**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())},
    )


def _wait_for(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    for _ in range(1200):
        if condition() or process.poll() is not None:
            return
        time.sleep(0.05)


@pytest.mark.skipif(
    transformers.__version__.startswith("5.0."),
    reason="transformers 5.0 writes LayerNorm weights of BERT under names it does not load again",
)
@pytest.mark.parametrize(
    "how", [pytest.param(signal.SIGKILL, marks=pytest.mark.slow), signal.SIGINT]
)
def test_a_stopped_run_goes_on_to_the_same_model(
    settings: RunSettings, tmp_path: Path, how: signal.Signals
) -> None:
    longer = replace(settings, training=replace(TRAINING, epochs=40.0))
    prune(longer, tmp_path / "whole", speed=False)
    out, unfinished = tmp_path / "out", tmp_path / "out.unfinished"
    process = _start(longer, out)
    _wait_for(lambda: any(unfinished.glob("checkpoint-*/trainer_state.json")), process)
    process.send_signal(how)
    process.communicate(timeout=60)
    assert process.returncode != 0
    assert not out.exists()
    with pytest.raises(HeadcountError, match="add --resume to go on"):
        prune(longer, out, speed=False)
    with pytest.raises(HeadcountError, match="was begun with keep 3, but now it is 2"):
        prune(replace(longer, keep=2), out, resume=True, speed=False)
    prune(longer, out, resume=True, speed=False)
    assert not unfinished.exists()
    first, second = (load_file(tmp_path / n / "model.safetensors") for n in ("whole", "out"))
    assert first.keys() == second.keys()
    assert all((first[name] == second[name]).all() for name in first)


@pytest.mark.parametrize("method", ["joint-dsp", "hard-concrete", "attrition", "handover"])
def test_an_even_run_that_was_stopped_goes_on_to_the_same_model(
    settings: RunSettings, method: str, tmp_path: Path
) -> None:
    even = replace(settings, method=method, settings={"even": True})
    prune(even, tmp_path / "whole", speed=False)
    out = tmp_path / "out"
    with stopped_training():
        prune(even, out, speed=False)
    prune(even, out, resume=True, speed=False)
    first, second = (load_file(tmp_path / n / "model.safetensors") for n in ("whole", "out"))
    assert first.keys() == second.keys()
    assert all((first[name] == second[name]).all() for name in first)
    assert set(hc.HeadMask.load(out / "mask.json").counts().values()) == {1}


def test_a_run_that_died_after_its_training_trains_no_more(
    settings: RunSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The training ends in the middle of an epoch, and its rate is not 0 there.
    training = replace(TRAINING, max_steps=5, scheduler="constant")
    short = replace(settings, training=training)
    prune(short, tmp_path / "whole", speed=False)
    out = tmp_path / "out"

    def die(*args: Any) -> None:
        time.sleep(1.0)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(PruningJob, "_cut", die)
        with pytest.raises(KeyboardInterrupt):
            prune(short, out, speed=False)
    noted = json.loads((tmp_path / "out.unfinished" / "elapsed.json").read_text())
    result = prune(short, out, resume=True, speed=False)
    first, second = (load_file(tmp_path / n / "model.safetensors") for n in ("whole", "out"))
    assert all((first[name] == second[name]).all() for name in first)
    # What it took before it died counts; the second after its last checkpoint does not.
    assert noted["since"] > 0 and result.seconds["pruning"] > noted["since"]


def test_a_cut_model_that_answers_nothing_is_refused() -> None:
    whole = build("bert")
    small, mask = copy.deepcopy(whole), hc.HeadMask.all(hc.find_heads(whole))
    with torch.no_grad():
        small.get_output_embeddings().bias.fill_(torch.nan)
    with pytest.raises(HeadcountError, match="differs from the masked one by inf"):
        checked_difference(whole, small, mask, [family_named("bert").inputs()])
